"""A start's report, for a person."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.start_report.against import Against, Change
from sgl_tune.start_report.against import headline as against_headline
from sgl_tune.start_report.phases import PHASES, UNEXPLAINED
from sgl_tune.start_report.report import PhaseReport, StartReport
from sgl_tune.units import count, human_bytes

_BAR = 24
_COLUMNS = (
    Column("phase"),
    Column("from", right=True),
    Column("took", right=True),
    Column(""),
    Column("store"),
    Column("hit"),
    Column("saves", right=True),
)


def headline(report: StartReport) -> str:
    wall = f"{report.wall_seconds:.1f} s"
    if not report.ready:
        ended = f"its command ended {_how(report.exit_code)}" if report.exit_code is not None else "stands"
        where = "a phase that no line names" if report.stands_in == UNEXPLAINED else report.stands_in
        return f"not ready after {wall}: {'failed' if report.failure else ended} in {where}"
    spared = report.saves_seconds
    if spared >= 0.05:
        return f"ready after {wall}, of which {spared:.1f} s build what a store could hold"
    return f"ready after {wall}"


def _how(code: int) -> str:
    try:
        return f"by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"with exit code {code}"


def show_report(out: Output, report: StartReport) -> None:
    out.line(headline(report), style="bold")
    for note in notes(report):
        out.line(f"- {note}", style="dim", indent=2)
    out.line()
    if report.phases:
        out.table(_COLUMNS, [_cells(phase, report.wall_seconds) for phase in report.phases])
    out.line(f"unexplained: {unexplained_text(report)}")
    reasons = [p for p in report.phases if p.cause != PHASES[p.name].spent_on]
    if reasons:
        out.line()
    for phase in reasons:
        out.line(f"{phase.name}: {phase.cause}")
        if phase.remedy and phase.hit is not True:
            out.line(f"spared by: {phase.remedy}", indent=2, style="cyan")
    _show_caches(out, report)
    _show_last_words(out, report)


def show_against(out: Output, found: Against) -> None:
    out.line()
    out.line(against_headline(found), style="bold")
    columns = (Column("phase"), Column("was", right=True), Column("is", right=True), Column("", right=True))
    out.table(columns, [against_cells(change) for change in found.changes if change.before or change.after])


def against_cells(change: Change) -> tuple[str, ...]:
    sign = "gone" if change.before and not change.after else f"{change.difference:+.1f} s"
    return (change.phase, f"{change.before:.1f} s", f"{change.after:.1f} s", sign)


def notes(report: StartReport) -> Iterator[str]:
    if report.starts > 1:
        yield f"start {report.number} of {report.starts} in this log: --start N shows another"
    if report.ranks > 1:
        yield f"{report.ranks} ranks: each second is the one's that the others wait for"
    yield from report.notes


def hit_text(phase: PhaseReport) -> str:
    if phase.store is None:
        return "-"
    return {True: "yes", False: "no", None: "not told"}[phase.hit]


def saves_text(phase: PhaseReport) -> str:
    return f"{phase.saves_seconds:.1f} s" if phase.saves_seconds else "-"


def unexplained_text(report: StartReport) -> str:
    share = 100 * report.unexplained_seconds / report.wall_seconds if report.wall_seconds else 0.0
    return f"{report.unexplained_seconds:.1f} s of {report.wall_seconds:.1f} s, {share:.0f} %"


def _cells(phase: PhaseReport, wall: float) -> tuple[str, ...]:
    times = (f"{phase.begins:.1f} s", f"{phase.seconds:.1f} s", _bar(phase.seconds, wall))
    return (phase.name, *times, phase.store or "-", hit_text(phase), saves_text(phase))


def _bar(seconds: float, wall: float) -> str:
    return "#" * round(_BAR * seconds / wall) if wall else ""


def _show_caches(out: Output, report: StartReport) -> None:
    for text in cache_lines(report):
        out.line(text)
    for one in report.written or ():
        out.line(
            f"{one.store}: {count(one.files, 'file')} written, {human_bytes(one.bytes)}, in {one.folder}"
        )


def cache_lines(report: StartReport) -> Iterator[str]:
    for file in report.caches:
        if file.loaded:
            yield f"tactics: {count(file.entries or 0, 'entry')} loaded from {file.path}"
        elif file.loaded is False:
            yield f"tactics: none loaded from {file.path}{f': {file.why_not}' if file.why_not else ''}"
        else:
            yield f"tactics: what was loaded from {file.path} is not told"


def _show_last_words(out: Output, report: StartReport) -> None:
    if not report.last_words:
        return
    if report.failure:
        out.line()
        out.line(f"{report.failure.rank or 'server'} failed first: {report.failure.text}", style="red")
    out.line()
    out.line("last words, longest silent first", style="bold")
    for word in report.last_words[:16]:
        silent = report.wall_seconds - word.at
        out.line(f"{word.rank or 'server'}: {silent:.1f} s before the log's end: {word.text}", indent=2)
