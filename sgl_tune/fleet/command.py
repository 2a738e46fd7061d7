"""Run `verify --fleet`: read the nodes, judge them, and print the result as a table, as Markdown for a pull
request, or as lines for a machine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from runtime.record.checked import WrongMember
from sgl_tune.cli.format import FindingsFormat
from sgl_tune.cli.out import Output, printable
from sgl_tune.cli.table import Column
from sgl_tune.errors import UsageError
from sgl_tune.fleet.judge import Planner
from sgl_tune.fleet.node import WAY, Node, node_of
from sgl_tune.fleet.outcome import STATES, Fault, Outcome, read_cold_start
from sgl_tune.fleet.survey import Alike, Survey, survey
from sgl_tune.reading import read_object
from sgl_tune.units import some
from sgl_tune.verify.environment import read_target
from sgl_tune.verify.expected import WARM
from sgl_tune.verify.scope import VerifyOptions

_MOST_SAID = 20
_STYLES = {"fails": "red", "tunes": "red", "compiles": "red", "unknown": "yellow", "good": "green"}
_MOST_ROWS, _MOST_PROBLEMS = 200, 10
_NAME = "sgl-tune verify --fleet"


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
    except WrongMember as error:
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


def show_survey(out: Output, survey: Survey, verdict: str, ok: bool, warm: str) -> None:
    ways = iter([f"on a node of that kind: {warm}"])
    rows = list(survey.rows)
    columns = _columns(rows)
    titles = [Column(name.upper(), right=name == "nodes", path=name == "machine") for name in columns]
    out.table(titles, (_cells(columns, *row) for row in rows[:_MOST_ROWS]))
    if len(rows) > _MOST_ROWS:
        out.line(f"{len(rows) - _MOST_ROWS:,} more rows; --format json has all of them")
    out.line()
    for fault, nodes in _faults(rows):
        text = f"{fault.state} {fault.code}: {_on(nodes)}: {_store(fault)}{fault.message}"
        out.line(text, _STYLES[fault.state])
        out.line(f"-> {next(ways, 'as above') if fault.remedy == WARM else fault.remedy}", indent=4)
    for problem in survey.problems[:_MOST_PROBLEMS]:
        out.line(f"line {problem.number}: {problem.problem}", "yellow")
    if survey.unread > _MOST_PROBLEMS:
        out.line(f"{survey.unread - _MOST_PROBLEMS:,} more lines could not be read", "yellow")
    for source in sources(survey):
        out.line(f"seconds: {source}", "dim")
    out.line(verdict, style="green" if ok else "red")


def markdown_lines(survey: Survey, verdict: str) -> Iterator[str]:
    rows = list(survey.rows)
    yield f"### {_escaped(verdict)}"
    yield ""
    columns = _columns(rows)
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(map(_escaped, _cells(columns, *row)))} |"
    yield ""
    for fault, nodes in _faults(rows):
        yield f"* {fault.state} `{fault.code}`: {_escaped(f'{_on(nodes)}: {_store(fault)}{fault.message}')}"
    for problem in survey.problems:
        yield f"* line {problem.number}: {_escaped(str(problem.problem))}"
    for source in sources(survey):
        yield f"* seconds: {_escaped(source)}"


def sources(survey: Survey) -> Iterable[str]:
    costs = (alike.cost for alike, _ in survey.rows if alike.cost)
    return dict.fromkeys(source for cost in costs for source in cost.sources)


def _columns(rows: Iterable[tuple[Alike, list[str]]]) -> list[str]:
    """Return the titles of columns. The deployment's is left out if there is only one."""
    several = len({alike.deployment for alike, _ in rows}) > 1
    return ["nodes", "next start", "seconds", *["deployment"] * several, "which", "machine"]


def _cells(columns: Iterable[str], alike: Alike, names: list[str]) -> list[str]:
    told = {
        "nodes": f"{len(names):,}",
        "next start": alike.state,
        "seconds": str(alike.cost) if alike.cost else "-",
        "deployment": alike.deployment or "-",
        "which": some(names),
        "machine": alike.machine,
    }
    return [told[name] for name in columns]


def _faults(rows: Iterable[tuple[Alike, list[str]]]) -> Iterator[tuple[Fault, list[str]]]:
    """Yield each fault once, with the nodes that have it."""
    found: dict[Fault, dict[str, None]] = {}
    for alike, names in rows:
        for fault in alike.outcome.faults:
            found.setdefault(fault, {}).update(dict.fromkeys(names))
    yield from ((fault, list(names)) for fault, names in list(found.items())[:_MOST_ROWS])


def _on(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} nodes"


def _store(fault: Fault) -> str:
    return "" if fault.store == "tactics" else f"{fault.store}: "


def _escaped(text: str) -> str:
    """Return a text with Markdown's characters escaped, so that it makes no cell, link or markup."""
    text = printable(text)
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>|#!~" else letter for letter in text)


def junit_lines(survey: Survey) -> Iterator[str]:
    suites: dict[str, list[tuple[str, Outcome]]] = {}
    for node in survey.nodes:
        for alike in node.alike:
            suites.setdefault(alike.deployment or "not planned", []).append((node.name, alike.outcome))
    problems = ((one.number, Fault("unknown", "unread", str(one.problem), WAY)) for one in survey.problems)
    unread = [(f"line {number}", Outcome((fault,))) for number, fault in problems]
    root = ElementTree.Element("testsuites", name=_NAME)
    for name, cases in [*suites.items(), *([("lines", unread)] if unread else [])]:
        states = [outcome.state for _, outcome in cases]
        unknown, failures = states.count("unknown"), sum(state not in ("good", "unknown") for state in states)
        counts = {"tests": len(states), "failures": failures, "errors": unknown, "skipped": 0}
        numbers = {what: str(number) for what, number in counts.items()}
        suite = ElementTree.SubElement(root, "testsuite", {"name": printable(name), **numbers})
        for case_name, outcome in cases:
            named = {"classname": printable(name), "name": printable(case_name)}
            _told(ElementTree.SubElement(suite, "testcase", named), outcome)
    ElementTree.indent(root)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from ElementTree.tostring(root, encoding="unicode").splitlines()


def _told(case: ElementTree.Element, outcome: Outcome) -> None:
    state = outcome.state
    if state != "good":
        worst = next(fault for fault in outcome.bad if fault.state == state)
        said = {"message": printable(worst.message), "type": printable(worst.code)}
        element = ElementTree.SubElement(case, "error" if state == "unknown" else "failure", said)
        element.text = "\n".join(
            printable(f"{fault.state} {fault.code}: {fault.message}; {fault.remedy}") for fault in outcome.bad
        )


def prometheus_lines(survey: Survey) -> Iterator[str]:
    for short, says, samples in _families(survey):
        name = f"sgl_tune_fleet_{short}"
        yield f"# HELP {name} {says}"
        yield f"# TYPE {name} gauge"
        for labels, value in samples:
            told = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
            yield f"{name}{{{told}}} {value:g}" if told else f"{name} {value:g}"


def _families(survey: Survey) -> Iterator[tuple[str, str, Sequence[tuple[Mapping[str, str], float]]]]:
    pairs = ((node.name, alike) for node in survey.nodes for alike in node.alike)
    cells = [({"node": name, "deployment": alike.deployment}, alike) for name, alike in pairs]
    built = [(labels, alike.cost) for labels, alike in cells if alike.cost]
    counted = [({"state": state}, survey.counted[state]) for state in STATES]
    starts = [({**labels, "state": alike.state}, 1) for labels, alike in cells]
    least = [(labels, cost.least) for labels, cost in built]
    most = [(labels, cost.most) for labels, cost in built if cost.most is not None]
    yield "nodes", "Nodes by what their next start comes to.", counted
    yield "lines_unread", "Lines that are no node.", [({}, survey.unread)]
    yield "next_start", "1 for what the next start of a deployment on a node comes to.", starts
    yield "build_seconds_least", "Seconds of that start that are spent on building, at least.", least
    yield "build_seconds_most", "The same at most; not there where it was never measured.", most


def _quoted(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
