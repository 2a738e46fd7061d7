"""Several starts beside each other: ranks, what-ifs, a sweep, remedies, and what really happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.memory.report import Comparison, MemoryReport, Row
from sgl_tune.memory.table import failure_text, verdict
from sgl_tune.units import memory_bytes

_FRONTIER = 24


def show_ranks(out: Output, reports: Sequence[MemoryReport]) -> None:
    if reports:
        out.line("Ranks", style="bold")
        _show_starts(out, "RANK", {report.rank_name: report for report in reports})


def show_what_ifs(out: Output, report: MemoryReport) -> None:
    if report.what_if:
        out.line("What if", style="bold")
        _show_starts(out, "START", {"as is": report, **report.what_if})
        _show_failures(out, report.what_if)


def _show_starts(out: Output, title: str, reports: Mapping[str, MemoryReport]) -> None:
    columns = (
        Column(title, path=True),
        Column("VERDICT"),
        Column("TIGHTEST IN", path=True),
        Column("FREE", right=True),
        Column("KV TOKENS", right=True),
    )
    out.table(columns, [(name, *summary(report)) for name, report in reports.items()])
    out.line()


def _show_failures(out: Output, reports: Mapping[str, MemoryReport]) -> None:
    for name, report in reports.items():
        if report.failure is not None:
            where = f", at {report.oom.where}" if report.oom and report.oom.where else ""
            text = verdict(report)[0] if report.oom else failure_text(report)
            out.line(f"{name}: {text}{where}", style="red")
    if any(report.failure for report in reports.values()):
        out.line()


def summary(report: MemoryReport) -> tuple[str, str, str, str]:
    phase = report.run.failed_in or (report.peak.name if report.peak else "-")
    tokens = f"{report.sizes.kv_tokens:,}" if report.sizes.kv_tokens is not None else "-"
    free = memory_bytes(report.free_at_peak_bytes) if report.verdict == "fits" else "-"
    return ("OOM" if report.verdict == "oom" else report.verdict, phase, free, tokens)


def show_remedies(out: Output, report: MemoryReport) -> None:
    if not report.remedies:
        return
    out.line("What would help, each one simulated", style="bold")
    for remedy in report.remedies:
        free = memory_bytes(remedy.free_at_peak_bytes)
        out.line(f"{remedy.flags}: fits, {free} free at the peak, {remedy.cost}", indent=2)
    out.line()


def show_comparison(out: Output, comparison: Comparison) -> None:
    out.line(comparison.title, style="bold")
    columns = (
        Column("", path=True),
        Column("PREDICTED", right=True),
        Column(comparison.other.upper(), right=True),
        Column("DIFFERENCE", right=True),
    )
    out.table(columns, [compared(row) for row in comparison.rows])
    out.line()


def compared(row: Row) -> tuple[str, str, str, str]:
    predicted, other = (
        memory_bytes(amount) if row.in_bytes else f"{amount:,}" for amount in (row.predicted, row.other)
    )
    return (row.what, predicted, other, row.difference)


def show_sweep(out: Output, sweep: Mapping[str, MemoryReport], unicode: bool = True) -> None:
    """The frontier: what each value gives to the KV cache, and what it leaves at the peak."""
    out.line("Sweep", style="bold")
    fitting = (report for report in sweep.values() if report.verdict == "fits")
    most = max((report.free_at_peak_bytes for report in fitting), default=1) or 1
    rows = []
    for name, report in sweep.items():
        if report.verdict == "fits":
            bar = ("\u2588" if unicode else "#") * round(_FRONTIER * report.free_at_peak_bytes / most)
        else:
            bar = "\u2717 does not fit" if unicode else "x does not fit"
        rows.append((name.partition("=")[2], *summary(report), bar))
    title = next(iter(sweep)).partition("=")[0].upper()
    columns = (
        Column(title, right=True),
        Column("VERDICT"),
        Column("TIGHTEST IN"),
        Column("FREE", right=True),
        Column("KV TOKENS", right=True),
        Column(""),
    )
    out.table(columns, rows)
    best = highest_that_fits(sweep)
    out.line(f"Highest that fits: {best}" if best else "None of these fits.", style="bold")
    out.line()


def highest_that_fits(sweep: Mapping[str, MemoryReport]) -> str | None:
    fitting = [name for name, report in sweep.items() if report.verdict == "fits"]
    return fitting[-1] if fitting else None
