"""Run `verify --fleet`: read the nodes, judge them, print the result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cli.format import FindingsFormat
from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.fleet.cost import read_cold_start
from sgl_tune.fleet.node import Node, UnreadLine, node_of
from sgl_tune.fleet.page import junit_lines, markdown_lines, prometheus_lines, show_survey
from sgl_tune.fleet.plans import Planner
from sgl_tune.fleet.survey import Survey, survey
from sgl_tune.reading import read_object
from sgl_tune.verify.environment import read_target
from sgl_tune.verify.scope import VerifyOptions

_MOST_SAID = 20


class FleetOptions(NamedTuple):
    """The options of `verify --fleet`. `beside`: those about one machine. `warm`: the command that fills."""

    path: Path
    target: Path | None
    cold_start: Path | None
    strict: bool
    format: FindingsFormat
    beside: tuple[str, ...]
    warm: str


def verify_fleet(out: Output, options: FleetOptions, asked: VerifyOptions) -> bool:
    """Judge the nodes; return whether every node would build nothing, as far as is known."""
    _check(options, asked)
    reference = read_reference(options.target) if options.target else None
    cold = read_cold_start(options.cold_start) if options.cold_start else None
    planner = Planner(asked)
    with out.progress("bytes read") as progress:
        found = survey(options.path, planner, reference, cold, progress.advance)
    deployments = [plan.deployment for plan in planner.plans]
    doubts = ((plan.deployment.name, text) for plan in planner.plans for text in plan.warnings)
    for doubt in _distinct(doubts):
        out.warn(doubt)
    own_notes = ((one.name, text) for one in deployments for text in one.inputs.notes)
    for note in (*_distinct(own_notes), *found.notes):
        out.note(note)
    ok = found.ok(options.strict)
    verdict = found.verdict(ok)
    out.result(
        {"ok": ok, "verdict": verdict, **found.to_json()},
        human=lambda: show_survey(out, found, verdict, ok, options.warm),
        quiet=_lines(options.format, found, verdict),
    )
    return ok


def _distinct(said: Iterable[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(f"{name}: {text}" for name, text in said))[:_MOST_SAID]


def _check(options: FleetOptions, asked: VerifyOptions) -> None:
    if options.beside:
        said = f"--fleet and {options.beside[0]}: that is about one machine"
        raise UsageError(said, "leave one of them out")
    if options.format is FindingsFormat.github:
        raise UsageError("--format github is not for a fleet: its lines are of files", "junit or markdown")
    if not asked.names_a_deployment:
        raise UsageError(
            "--fleet needs the deployment that the nodes are to start",
            "its flags, its command after --, or a folder with sgl-tune.toml",
        )


def read_reference(path: Path) -> Node:
    """Read the reference: a node that starts well, or FlashInfer's strings alone."""
    target = read_target(path)
    content: dict[str, Any] = read_object(path)
    if "metadata" not in content:
        return Node("", dict(target.metadata or {}))
    try:
        return node_of(content)
    except UnreadLine as error:
        way = "sgl-tune env --format json on a node that starts well"
        raise UsageError(f"{path}: {error}", way) from None


def _lines(format: FindingsFormat, found: Survey, verdict: str) -> Iterable[str]:
    if format is FindingsFormat.markdown:
        return markdown_lines(found, verdict)
    if format is FindingsFormat.junit:
        return junit_lines(found)
    if format is FindingsFormat.prometheus:
        return prometheus_lines(found)
    return (node.name for node in found.nodes if any(alike.outcome.bad for alike in node.alike))
