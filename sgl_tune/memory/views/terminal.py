"""Print a report on a terminal of 80 columns: the verdict, then bars on the scale of the GPU. A document
gets tables in place of bars."""

from collections.abc import Iterator

from runtime.server.units import GIB
from runtime.start.run_record import Phase
from sgl_tune.cli.out import Output
from sgl_tune.memory.parts import beyond_peak
from sgl_tune.memory.report import Answer, MemoryReport
from sgl_tune.memory.views import tables
from sgl_tune.memory.views.tables import failure_text, heading, remedy_text, sizes_text, verdict, verdict_line
from sgl_tune.units import count

_NAME, _NUMBER, _BAR = 25, 8, 13
_TITLES = ("LEAVES", "PEAK", "CACHED", "OUTSIDE", "FREE")
_CELLS = _NAME + 5 * _NUMBER + 2
_SHORTEST_BAR = 12  # the scale needs as much
_FRAMES = 8  # of the stack, the innermost
_HELD, _PEAK, _HELD_ASCII, _PEAK_ASCII = "█", "▒", "#", "+"


def show_answer(out: Output, found: Answer, verbose: bool, unicode: bool = True) -> None:
    report = found.report
    show_verdict(out, report)
    out.line(heading(report), style="dim")
    for warning in report.trust.warnings:
        out.line(f"- {warning}", style="yellow", indent=2)
    show_remedies(out, report)
    if not report.refused:
        _show_phases(out, report, unicode)
        show_table(out, tables.held(report))
        show_table(out, tables.largest(report))
        if sizes := sizes_text(report):
            out.line()
            out.line(sizes)
    for table in tables.beside(found):
        show_table(out, table)
    _show_failures(out, report)
    _show_provenance(out, report, verbose or out.is_document)


def show_verdict(out: Output, report: MemoryReport) -> None:
    out.line(verdict_line(report), style=verdict(report)[1])
    if report.failure is not None:
        out.line(failure_text(report), style="red", indent=2)
    where = [report.oom.where] if report.oom and report.oom.where else []
    for frame in [*reversed(report.stack[-_FRAMES:])] or where:
        out.line(f"at {frame}", style="red", indent=2)


def show_remedies(out: Output, report: MemoryReport) -> None:
    if not report.remedies:
        return
    out.line()
    out.line("What would help, the cheapest first; each was simulated as a whole start", style="bold")
    for number, remedy in enumerate(report.remedies):
        out.line(f"{number + 1}. {remedy_text(report, number)}", indent=2)
        out.line(remedy.command, indent=5, style="cyan")


def show_table(out: Output, table: tables.Table) -> None:
    if table.rows:
        out.line()
        out.line(table.title, style="bold")
        out.table(table.columns, table.rows)
        if table.below:
            out.line(table.below, style="bold")


def _show_failures(out: Output, report: MemoryReport) -> None:
    for name, other in report.what_if.items():
        if other.failure is not None:
            where = f", at {other.oom.where}" if other.oom and other.oom.where else ""
            text = verdict(other)[0] if other.oom else failure_text(other)
            out.line(f"{name}: {text}{where}", style="red")


def _show_provenance(out: Output, report: MemoryReport, verbose: bool) -> None:
    """Print where the numbers come from."""
    notes = report.trust.notes
    if verbose:
        show_table(out, tables.constants(report))
        out.line()
        for note in notes:
            out.line(f"- {note}", style="dim", indent=2)
    elif notes or report.constants:
        out.line()
        noted = f" ({count(len(notes), 'note')})" if notes else ""
        out.line(f"-v shows where these numbers come from{noted}.", style="dim")


def _show_phases(out: Output, report: MemoryReport, unicode: bool) -> None:
    if out.is_document:
        return show_table(out, tables.phases(report))
    out.line()
    room = _BAR if out.width is None else out.width - _CELLS
    for text, style in phase_lines(report, unicode, room):
        out.line(text, style=style)


def phase_lines(
    report: MemoryReport, unicode: bool = True, room: int = _BAR
) -> Iterator[tuple[str, str | None]]:
    """Yield a line per phase: memory it leaves, torch's peak, the driver's free memory, and a bar."""
    held, peak = (_HELD, _PEAK) if unicode else (_HELD_ASCII, _PEAK_ASCII)
    width = min(_BAR, room) if room >= _SHORTEST_BAR else 0
    scale = f"  0{report.total_bytes / GIB:>{width - 5}.2f} GiB" if width else ""
    titles = "".join(f"{title:>{_NUMBER}}" for title in _TITLES)
    yield f"{'GiB':<{_NAME}}{titles}{scale}", "bold"
    for phase in report.phases:
        mark = "!" if phase is report.failed else ">" if phase is report.peak else " "
        name = mark + " " * (1 + phase.depth) + phase.name
        amounts = ("-" if amount is None else f"{amount / GIB:.2f}" for amount in _amounts(report, phase))
        cells = "".join(f"{amount:>{_NUMBER}}" for amount in amounts)
        style = "red" if phase is report.failed else "bold" if phase is report.peak else None
        bar = _bar(phase, report.total_bytes, held, peak, width)
        yield f"{name[: _NAME - 1]:<{_NAME}}{cells}  {bar}".rstrip(), style
    for name in report.run.unfinished:
        yield f"! {name}: not finished", "red"
    if width:
        yield f"{held} held afterwards   {peak} at the phase's peak   > least free", "dim"


def _amounts(report: MemoryReport, phase: Phase) -> tuple[int | None, int, int, int, int]:
    """Return the numbers of a phase. A phase that ran out of memory leaves None; torch said what was free."""
    held = (phase.peak_bytes, *beyond_peak(phase, report.total_bytes))
    if report.oom is not None and phase is report.failed:
        return None, *held, report.oom.free_bytes
    return phase.persistent_bytes, *held, phase.free_at_peak_bytes


def _bar(phase: Phase, total: int, held: str, peak: str, width: int) -> str:
    if not total:
        return ""
    used = phase.non_torch_bytes + phase.reserved_bytes
    at_peak = max(used, total - phase.free_at_peak_bytes)
    full, most = (min(width, round(amount / total * width)) for amount in (used, at_peak))
    return held * full + peak * (most - full)
