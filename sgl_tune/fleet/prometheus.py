"""A survey in Prometheus' text format, as a file that a node exporter reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgl_tune.cli.out import printable
from sgl_tune.fleet.outcome import STATES
from sgl_tune.fleet.survey import Survey

Sample = tuple[dict[str, str], float]


def prometheus_lines(survey: Survey) -> Iterator[str]:
    cells = [(node.name, alike) for node in survey.nodes for alike in node.alike]
    yield from _family(
        "sgl_tune_fleet_nodes",
        "Nodes by what their next start comes to.",
        (({"state": state}, survey.counted[state]) for state in STATES),
    )
    yield from _family("sgl_tune_fleet_lines_unread", "Lines that are no node.", [({}, survey.unread)])
    yield from _family(
        "sgl_tune_fleet_next_start",
        "1 for what the next start of a deployment on a node comes to.",
        (({"node": name, "deployment": alike.deployment, "state": alike.state}, 1) for name, alike in cells),
    )
    yield from _family(
        "sgl_tune_fleet_build_seconds_least",
        "Seconds of that start that are spent on building, at least.",
        (
            ({"node": name, "deployment": alike.deployment}, alike.cost.least)
            for name, alike in cells
            if alike.cost
        ),
    )
    yield from _family(
        "sgl_tune_fleet_build_seconds_most",
        "The same at most; not there where it was never measured.",
        (
            ({"node": name, "deployment": alike.deployment}, alike.cost.most)
            for name, alike in cells
            if alike.cost and alike.cost.most is not None
        ),
    )


def _family(name: str, says: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{told}}} {value:g}" if told else f"{name} {value:g}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
