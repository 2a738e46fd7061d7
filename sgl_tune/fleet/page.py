"""A survey as a table for people, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgl_tune.cli.out import Output, printable
from sgl_tune.cli.table import Column
from sgl_tune.fleet.outcome import Fault
from sgl_tune.fleet.survey import Alike, Survey

_STYLES = {"fails": "red", "tunes": "red", "compiles": "red", "unknown": "yellow", "good": "green"}
_NAMED, _MOST_ROWS, _MOST_PROBLEMS = 3, 200, 10


def show_survey(out: Output, survey: Survey, verdict: str, ok: bool) -> None:
    rows = list(survey.rows)
    columns = _columns(rows)
    out.table(list(map(_titled, columns)), (_cells(columns, *row) for row in rows[:_MOST_ROWS]))
    if len(rows) > _MOST_ROWS:
        out.line(f"{len(rows) - _MOST_ROWS:,} more rows; --format json has all of them")
    out.line()
    for fault, nodes in _faults(rows):
        out.line(
            f"{fault.state} {fault.code}: {_on(nodes)}: {_store(fault)}{fault.message}", _STYLES[fault.state]
        )
        out.line(f"-> {fault.remedy}", indent=4)
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
    """Which deployment goes without saying where there is one."""
    several = len({alike.deployment for alike, _ in rows}) > 1
    return ["nodes", "next start", "seconds", *["deployment"] * several, "which", "machine"]


def _titled(name: str) -> Column:
    return Column(name.upper(), right=name == "nodes", path=name == "machine")


def _cells(columns: Iterable[str], alike: Alike, names: list[str]) -> list[str]:
    told = {
        "nodes": f"{len(names):,}",
        "next start": alike.state,
        "seconds": str(alike.cost) if alike.cost else "-",
        "deployment": alike.deployment or "-",
        "which": _which(names),
        "machine": alike.machine,
    }
    return [told[name] for name in columns]


def _which(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _faults(rows: Iterable[tuple[Alike, list[str]]]) -> Iterator[tuple[Fault, list[str]]]:
    """Each once, with the nodes that have it."""
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
    """Names and messages are anybody's: none becomes a cell, a link or markup of its own."""
    text = printable(text)
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>|#!~" else letter for letter in text)
