"""A survey in Prometheus' text format, as a file that a node exporter reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgl_tune.cli.out import printable
from sgl_tune.fleet.outcome import STATES
from sgl_tune.fleet.survey import Survey

Sample = tuple[dict[str, str], float]


def prometheus_lines(survey: Survey) -> Iterator[str]:
    cells = [
        ({"node": node.name, "deployment": alike.deployment}, alike)
        for node in survey.nodes
        for alike in node.alike
    ]
    built = [(labels, alike.cost) for labels, alike in cells if alike.cost]
    yield from _family(
        "nodes",
        "Nodes by what their next start comes to.",
        (({"state": state}, survey.counted[state]) for state in STATES),
    )
    yield from _family("lines_unread", "Lines that are no node.", [({}, survey.unread)])
    yield from _family(
        "next_start",
        "1 for what the next start of a deployment on a node comes to.",
        (({**labels, "state": alike.state}, 1) for labels, alike in cells),
    )
    yield from _family(
        "build_seconds_least",
        "Seconds of that start that are spent on building, at least.",
        ((labels, cost.least) for labels, cost in built),
    )
    yield from _family(
        "build_seconds_most",
        "The same at most; not there where it was never measured.",
        ((labels, cost.most) for labels, cost in built if cost.most is not None),
    )


def _family(short: str, says: str, samples: Iterable[Sample]) -> Iterator[str]:
    name = f"sgl_tune_fleet_{short}"
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{told}}} {value:g}" if told else f"{name} {value:g}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
