"""A report for a terminal of 80 columns: bars against the GPU's capacity, the peak marked, the OOM in red."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.devices.readings import OutOfMemory
from runtime.server.units import GIB
from runtime.start.run_record import Phase
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.memory.report import Constant, MemoryReport, cached_bytes
from sgl_tune.units import memory_bytes

_NAME, _NUMBER, _BAR = 25, 8, 13
_TITLES = ("LEAVES", "PEAK", "CACHED", "OUTSIDE", "FREE")
_CELLS = _NAME + 5 * _NUMBER + 2
_SHORTEST_BAR = 12  # which its scale fits
_SHOWN = 5
_REASONS = 2
_FRAMES = 8  # the innermost
_HELD, _PEAK, _HELD_ASCII, _PEAK_ASCII = "█", "▒", "#", "+"


def show_report(out: Output, report: MemoryReport, encoding: str = "utf-8") -> None:
    show_verdict(out, report)
    out.line()
    if report.refused:
        return
    room = _BAR if out.width is None else out.width - _CELLS
    for text, style in phase_lines(report, "utf" in encoding.lower(), room):
        out.line(text, style=style)
    out.line()
    _show_peak(out, report)
    _show_held(out, report)
    _show_sizes(out, report)
    _show_constants(out, report)


def heading(report: MemoryReport) -> str:
    """The model, the GPU and the ranks."""
    size = memory_bytes(report.total_bytes)
    known = f"{report.gpu}{' (assumed)' if report.is_gpu_assumed else ''}"
    gpu = known if size in known else f"{known}, {size}"
    return f"{report.title} on {gpu}: {report.subtitle}"


def show_verdict(out: Output, report: MemoryReport) -> None:
    text, style = verdict(report)
    doubts = [part for part in (report.not_modelled, exactness(report)) if part]
    out.line("; ".join([text, *doubts]), style=style)
    if report.failure is not None:
        out.line(failure_text(report), style="red", indent=2)
    for frame in reversed(report.stack[-_FRAMES:]):
        out.line(f"at {frame}", style="red", indent=2)
    if not report.stack and report.oom and report.oom.where:
        out.line(f"at {report.oom.where}", style="red", indent=2)


def exactness(report: MemoryReport) -> str:
    """Whether what torch counts is that of a real start; if not, the first reasons. Else who answered."""
    if report.source == "core":
        return "by the runtime core, no server was asked"
    if report.source == "measured" or report.refused:
        return ""
    if report.exact:
        return (
            "exact (what torch counts up to ready, with random weights; not traffic, not a real checkpoint)"
        )
    more = len(report.inexact) - _REASONS
    reasons = "; ".join(report.inexact[:_REASONS])
    return f"not exact: {reasons}{f'; and {more} more (--format json)' if more > 0 else ''}"


def failure_text(report: MemoryReport) -> str:
    """torch's own words, as far as they are about this failure."""
    if report.failure is None:
        return ""
    message = report.failure.error
    if report.oom is not None or report.source != "ghost":
        message = message.partition(": ")[2]
    if report.oom is not None and report.oom.by_driver:
        return message.partition("\n")[0]
    return message.partition(" If reserved but")[0]


def verdict(report: MemoryReport) -> tuple[str, str]:
    if report.refused:
        return f"REFUSED by SGLang: {report.refused}", "red"
    if report.oom is not None and report.failure is not None:
        return _out_of_memory(report, report.oom, report.failure.phase)
    if report.failure is not None:
        return f"FAILED in {report.failure.phase}", "red"
    if report.run.unfinished:
        return f"UNFINISHED: the run ended in {report.run.failed_in}", "red"
    least = f"{memory_bytes(report.free_at_peak_bytes)} free at the peak"
    where = f", in {report.peak.name}{_cached(report.peak)}" if report.peak else ""
    doubt = memory_bytes(report.margin_bytes)
    if report.is_inside_bar:
        return f"FITS, BARELY: {least}{where}, and ±{doubt} of doubt", "yellow"
    return f"FITS: {least}{where} (±{doubt})", "green"


def _out_of_memory(report: MemoryReport, oom: OutOfMemory, phase: str) -> tuple[str, str]:
    """With how far off the free bytes may be; a measured start has no error bar."""
    tried = "the driver refused" if oom.by_driver else f"tried {memory_bytes(oom.tried_bytes)}"
    doubt = f" (±{memory_bytes(report.margin_bytes)})" if report.margin_bytes else ""
    free = f"{memory_bytes(oom.free_bytes)} free{doubt}"
    barely = ", inside the error bar," if report.is_inside_bar else ""
    text = f"{tried}, {free}, {memory_bytes(oom.allocated_bytes)} allocated"
    return f"OUT OF MEMORY{barely} in {phase}: {text}", "yellow" if barely else "red"


def _cached(phase: Phase) -> str:
    """What torch holds and does not use: it gives some of it back before it gives up."""
    cached = cached_bytes(phase)
    return f", {memory_bytes(cached)} cached" if cached >= GIB else ""


def phase_lines(
    report: MemoryReport, unicode: bool = True, room: int = _BAR
) -> Iterator[tuple[str, str | None]]:
    """One line a phase: what it leaves, torch's peak, what the driver had left, and the GPU as a bar."""
    width = min(_BAR, room) if room >= _SHORTEST_BAR else 0
    scale = f"  0{memory_bytes(report.total_bytes):>{width - 1}}" if width else ""
    titles = "".join(f"{title:>{_NUMBER}}" for title in _TITLES)
    yield f"{'GiB':<{_NAME}}{titles}{scale}", "bold"
    failed = report.failure.at_failure if report.failure else None
    for phase in report.phases:
        mark = "!" if phase is failed else ">" if phase is report.peak else " "
        name = mark + " " * (1 + phase.depth) + phase.name
        cells = "".join(_number(amount) for amount in _amounts(report, phase))
        style = "red" if phase is failed else "bold" if phase is report.peak else None
        bar = _bar(phase, report.total_bytes, unicode, width)
        yield f"{name[: _NAME - 1]:<{_NAME}}{cells}  {bar}".rstrip(), style
    for name in report.run.unfinished:
        yield f"! {name}: not finished", "red"
    held, peak = (_HELD, _PEAK) if unicode else (_HELD_ASCII, _PEAK_ASCII)
    if not width:
        return
    yield f"{held} held afterwards   {peak} at the phase's peak   > least free", "dim"


def _amounts(report: MemoryReport, phase: Phase) -> tuple[int | None, int, int, int, int]:
    """A phase that ran out of memory leaves nothing, and what was free then torch has told."""
    held = (phase.peak_bytes, cached_bytes(phase), phase.non_torch_bytes)
    if report.oom is not None and report.failure is not None and phase is report.failure.at_failure:
        return None, *held, report.oom.free_bytes
    return phase.persistent_bytes, *held, phase.free_at_peak_bytes


def _number(amount: int | None) -> str:
    return f"{'-' if amount is None else f'{amount / GIB:.2f}':>{_NUMBER}}"


def _bar(phase: Phase, total: int, unicode: bool, width: int) -> str:
    held, peak = (_HELD, _PEAK) if unicode else (_HELD_ASCII, _PEAK_ASCII)
    if not total:
        return ""
    used = phase.non_torch_bytes + phase.reserved_bytes
    at_peak = max(used, phase.non_torch_bytes + phase.reserved_peak_bytes)
    full, most = (min(width, round(amount / total * width)) for amount in (used, at_peak))
    return held * full + peak * (most - full)


def _show_peak(out: Output, report: MemoryReport) -> None:
    phase = report.failure.at_failure if report.failure else report.peak
    if phase is None or not phase.largest:
        return
    out.line(f"Largest at the peak of {phase.name}", style="bold")
    columns = (Column("SIZE", right=True), Column("WHAT", path=True), Column("WHERE", path=True))
    out.table(columns, [(memory_bytes(held.bytes), held.what, held.where) for held in phase.largest[:_SHOWN]])
    out.line()


def _show_held(out: Output, report: MemoryReport) -> None:
    if not report.held:
        return
    out.line("Who holds the GPU then", style="bold")
    columns = (Column("SIZE", right=True), Column("OF THE GPU", right=True), Column("WHAT", path=True))
    total = report.total_bytes or 1
    out.table(columns, [(memory_bytes(of.bytes), f"{of.bytes / total:.1%}", of.what) for of in report.held])
    out.line()


def _show_sizes(out: Output, report: MemoryReport) -> None:
    sizes = report.sizes
    facts = []
    if sizes.kv_tokens is not None:
        per_token = f" of {sizes.kv_bytes_per_token:,} bytes" if sizes.kv_bytes_per_token else ""
        fixed = f" (--max-total-tokens {sizes.kv_tokens})" if report.source == "ghost" else ""
        facts.append(f"KV pool {sizes.kv_tokens:,} tokens{per_token}{fixed}")
    if sizes.states is not None:
        facts.append(f"{sizes.states:,} states of {sizes.state_bytes or 0:,} bytes")
    if sizes.mem_fraction_static is not None:
        facts.append(f"mem fraction {sizes.mem_fraction_static:g}")
    if sizes.max_running_requests is not None:
        facts.append(f"{sizes.max_running_requests:,} requests a rank")
    if sizes.dummy_batch_rows is not None:
        facts.append(f"dummy batch {sizes.dummy_batch_rows:,} rows")
    if sizes.chunked_prefill_size is not None:
        facts.append(f"chunk {sizes.chunked_prefill_size:,} a rank")
    for name, graphs in (("prefill", sizes.prefill_graphs), ("decode", sizes.decode_graphs)):
        if graphs:
            facts.append(f"{len(graphs)} {name} graphs to {max(graphs):,}")
    if facts:
        out.line("Sizes: " + ", ".join(facts))


def _show_constants(out: Output, report: MemoryReport) -> None:
    if not report.constants:
        return
    total = sum(constant.bytes for constant in report.constants)
    counted = report.peak.peak_bytes if report.peak else 0
    out.line(
        f"Counted, as torch does: {memory_bytes(counted)} at the peak. Outside torch's count, "
        f"{memory_bytes(total)} of calibrated constants (±{memory_bytes(report.margin_bytes)}):"
    )
    columns = (Column("SIZE", right=True), Column("OF"), Column("KNOWN FROM", path=True))
    out.table(columns, [(memory_bytes(of.bytes), _of(of), of.source) for of in report.constants])


def _of(constant: Constant) -> str:
    return constant.name if constant.times == 1 else f"{constant.times:,} x {constant.name}"
