"""Print a start's report on a terminal, or as Markdown for a pull request or an issue."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.start_report.against import Against
from sgl_tune.start_report.phases import PHASES, UNEXPLAINED
from sgl_tune.start_report.report import StartReport
from sgl_tune.units import count, human_bytes
from sgl_tune.web_page.render import rendered

_BAR = 24
_MOST_WORDS, _MOST_LETTERS = 16, 100
_RIGHT = ("from", "took", "saves", "was", "is", "difference")
_PHASES = ("phase", "from", "took", "", "store", "hit", "saves")
_AGAINST = ("phase", "was", "is", "difference")
_PAGE = Path(__file__).parent / "page"
_CHART = ("The start, second by second", "Point at a span, or walk through them with the Tab key.")


def headline(report: StartReport) -> str:
    wall = f"{report.wall_seconds:.1f} s"
    if not report.ready:
        ended = f"its command ended {_how(report.exit_code)}" if report.exit_code is not None else "stands"
        where = "a phase that no line names" if report.stands_in == UNEXPLAINED else report.stands_in
        if report.failure and report.outcome.failed_in not in ("", report.stands_in):
            return f"not ready after {wall}"  # the line above names the phase
        if report.start.is_timed:
            return f"not ready after {wall}: {'failed' if report.failure else ended} in {where}"
        return "no line has a time: docker logs -t and kubectl logs --timestamps add them"
    spared = report.saves_seconds
    built = f"; {spared:.1f} s of this build what a store could hold" if spared >= 0.05 else ""
    return f"ready after {wall}{built}"


def show_report(out: Output, report: StartReport) -> None:
    if report.outcome.log.death:
        out.line(report.outcome.headline, style="red")
        for line in _failure(report):
            out.line(line, indent=2)
    out.line(headline(report), style="bold")
    for note in notes(report):
        out.line(f"- {note}", style="dim", indent=2)
    out.line()
    if report.phases:
        out.table(_columns(_PHASES), _rows(report))
    for title, lines in _parts(report):
        out.line(title)
        for line in lines:
            out.line(line, indent=2)


def report_lines(report: StartReport) -> Iterator[str]:
    yield f"### {report.outcome.headline if report.outcome.log.death else headline(report)}"
    yield ""
    if report.outcome.log.death:
        yield from (f"- {line}" for line in (headline(report), *_failure(report)))
        yield ""
    rows = ((*row[:3], *row[4:]) for row in _rows(report))  # drop the bars
    yield from _table((*_PHASES[:3], *_PHASES[4:]), rows)
    for title, lines in _parts(report):
        yield f"- {title}"
        yield from (f"  - {line}" for line in lines)
    yield from (f"- {note}" for note in notes(report))


def show_against(out: Output, found: Against) -> None:
    out.line()
    out.line(found.headline, style="bold")
    out.table(_columns(_AGAINST), found.rows)


def against_lines(found: Against) -> Iterator[str]:
    yield f"### {found.headline}"
    yield ""
    yield from _table(_AGAINST, found.rows)


def notes(report: StartReport) -> Iterator[str]:
    if report.starts > 1:
        yield f"start {report.number} of {report.starts} in this log: --start N shows another"
    if report.ranks > 1:
        yield f"{report.ranks} ranks: each second is counted for the rank that the others wait for"
    yield from report.start.notes


def _parts(report: StartReport) -> Iterator[tuple[str, list[str]]]:
    """Yield what stands below the table: a line, and the lines that belong to it."""
    wall, unexplained = report.wall_seconds, report.unexplained_seconds
    share = 100 * unexplained / wall if wall else 0.0
    if report.start.is_timed:
        yield f"unexplained: {unexplained:.1f} s of {wall:.1f} s, {share:.0f} %", []
    for phase in report.phases:
        if phase.cause != PHASES[phase.name].spent_on:
            spared = [f"spared by: {phase.remedy}"] if phase.remedy and phase.hit is not True else []
            yield f"{phase.name}: {phase.cause}", spared
    for file in report.tactics.files if report.tactics else ():
        yield file.line(), []
    for one in report.written:
        written = f"{count(one.files, 'file')} written, {human_bytes(one.bytes)}, in {one.folder}"
        yield f"{one.store}: {written}", []
    for finding, times in report.start.findings.items():
        yield finding.line(times), []
    if report.last_words:
        yield "last words, longest silent first", [*_last_words(report)][:_MOST_WORDS]


def _last_words(report: StartReport) -> Iterator[str]:
    """Yield the ranks' last lines. Ranks that fell silent together with the same words share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for word in report.last_words:
        silent = f"{report.wall_seconds - word.at:.1f} s before the log's end"
        said.setdefault((silent, word.text[:_MOST_LETTERS]), []).append(word.rank)
    for (silent, text), ranks in said.items():
        more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
        yield f"{ranks[0]}{more}: {silent}: {text}"


def _failure(report: StartReport) -> Iterator[str]:
    death = report.outcome.log.death
    assert death is not None
    yield f"line {death.line:,}: {death.text.splitlines()[0][:300]}"
    yield from (f"to do: {remedy.line()}" for remedy in report.outcome.remedies)


def _rows(report: StartReport) -> Iterator[tuple[str, ...]]:
    for phase in report.phases:
        bar = "#" * round(_BAR * phase.seconds / report.wall_seconds) if report.wall_seconds else ""
        hit = {True: "yes", False: "no", None: "unknown"}[phase.hit] if phase.store else "-"
        saves = f"{phase.saves_seconds:.1f} s" if phase.saves_seconds else "-"
        times = f"{phase.begins:.1f} s", f"{phase.seconds:.1f} s"
        yield (phase.name, *times, bar, phase.store or "-", hit, saves)


def _how(code: int) -> str:
    try:
        return f"by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"with exit code {code}"


def _columns(titles: Sequence[str]) -> list[Column]:
    return [Column(title, right=title in _RIGHT) for title in titles]


def _table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    for cells in (titles, ["---"] * len(titles), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def render_page(report: StartReport, other: Against | None, title: str) -> str:
    data: dict[str, Any] = {**report.to_json(), "title": f"The start in {title}"}
    death = report.outcome.log.death
    data["headline"] = headline(report)
    data["death"] = death.text if death else None
    data["to_do"] = [remedy.line() for remedy in report.outcome.remedies] if death else []
    data["all_notes"] = [*notes(report)]
    data["against"] = {**other.to_json(), "headline": other.headline} if other else None
    return rendered(_PAGE, ("script.js",), f"The start in {title}: {data['headline']}", _CHART, data)
