"""The words of a report: its verdict, how far to believe it, and what SGLang or torch said."""

from runtime.devices.readings import OutOfMemory
from runtime.server.units import GIB
from runtime.start.run_record import Phase
from sgl_tune.memory.parts import beyond_peak
from sgl_tune.memory.report import MemoryReport
from sgl_tune.units import memory_bytes

_REASONS = 2
_EXACT = "exact (what torch counts up to ready, with random weights; not traffic, not a real checkpoint)"


def heading(report: MemoryReport) -> str:
    """Return the title: the model, the GPU and the ranks."""
    size, whose = memory_bytes(report.total_bytes), report.whose
    known = f"{whose.gpu}{' (assumed)' if whose.is_gpu_assumed else ''}"
    gpu = known if size in known else f"{known}, {size}"
    return f"{whose.title} on {gpu}: {whose.subtitle}"


def verdict_line(report: MemoryReport) -> str:
    """Return the verdict and what makes it uncertain."""
    parts = [verdict(report)[0], report.trust.not_modelled, exactness(report)]
    return "; ".join(filter(None, parts))


def verdict(report: MemoryReport) -> tuple[str, str]:
    """Return the verdict and its colour."""
    if report.refused:
        return f"REFUSED by SGLang: {report.refused}", "red"
    if report.oom is not None and report.failure is not None:
        return _out_of_memory(report, report.oom, report.failure.phase)
    if report.failure is not None:
        return f"FAILED in {report.failure.phase}", "red"
    if report.run.unfinished:
        return f"UNFINISHED: the run ended in {report.run.failed_in}", "red"
    least = f"{memory_bytes(report.free_at_peak_bytes)} free at the peak"
    where = f", in {report.peak.name}{_cached(report.peak, report.total_bytes)}" if report.peak else ""
    bar = f" (±{memory_bytes(report.margin_bytes)})"
    if report.is_inside_bar:
        return f"FITS, BARELY: {least}{where}{bar}", "yellow"
    return f"FITS: {least}{where}{bar}", "green"


def _out_of_memory(report: MemoryReport, oom: OutOfMemory, phase: str) -> tuple[str, str]:
    """Return the out-of-memory verdict. A prediction shows the error bar; a measured start has none."""
    tried = "the driver refused" if oom.by_driver else f"tried {memory_bytes(oom.tried_bytes)}"
    bar = f" (±{memory_bytes(report.margin_bytes)})" if report.margin_bytes else ""
    barely = ", inside the error bar," if report.is_inside_bar else ""
    text = f"{tried}, {memory_bytes(oom.free_bytes)} free{bar}, {memory_bytes(oom.allocated_bytes)} allocated"
    return f"OUT OF MEMORY{barely} in {phase}: {text}", "yellow" if barely else "red"


def _cached(phase: Phase, total: int) -> str:
    """Return what torch holds and does not use, as text. It gives some back before it fails."""
    cached, _ = beyond_peak(phase, total)
    return f", {memory_bytes(cached)} cached" if cached >= GIB else ""


def exactness(report: MemoryReport) -> str:
    """Return whether torch's numbers equal a real start's, else the first reasons why not. If the runtime
    core answered, return only that.
    """
    if report.whose.source == "core":
        return "by the runtime core, no server was asked"
    if report.whose.source == "measured" or report.refused:
        return ""
    if report.trust.exact:
        return _EXACT
    more = len(report.trust.inexact) - _REASONS
    reasons = "; ".join(report.trust.inexact[:_REASONS])
    return f"not exact: {reasons}{f'; and {more} more (--format json)' if more > 0 else ''}"


def failure_text(report: MemoryReport) -> str:
    """Return the exception's own words, as far as they are about this failure."""
    if report.failure is None:
        return ""
    message = report.failure.error
    if report.oom is not None or report.whose.source != "ghost":
        message = message.partition(": ")[2]
    if report.oom is not None and report.oom.by_driver:
        return message.partition("\n")[0]
    return message.partition(" If reserved but")[0]


def sizes_text(report: MemoryReport) -> str:
    sizes, facts = report.sizes, []
    if sizes.kv_tokens is not None:
        per_token = f" of {sizes.kv_bytes_per_token:,} bytes" if sizes.kv_bytes_per_token else ""
        fixed = f" (--max-total-tokens {sizes.kv_tokens})" if report.whose.source == "ghost" else ""
        facts.append(f"KV pool {sizes.kv_tokens:,} tokens{per_token}{fixed}")
    if sizes.states is not None:
        facts.append(f"{sizes.states:,} states of {sizes.state_bytes or 0:,} bytes")
    for text, value in (
        ("mem fraction {:g}", sizes.mem_fraction_static),
        ("{:,} requests per rank", sizes.max_running_requests),
        ("dummy batch {:,} rows", sizes.dummy_batch_rows),
        ("chunk {:,} per rank", sizes.chunked_prefill_size),
    ):
        facts += [] if value is None else [text.format(value)]
    for name, graphs in (("prefill", sizes.prefill_graphs), ("decode", sizes.decode_graphs)):
        facts += [f"{len(graphs)} {name} graphs to {max(graphs):,}"] if graphs else []
    return f"Sizes: {', '.join(facts)}" if facts else ""


def remedy_text(report: MemoryReport, number: int) -> str:
    one = report.remedies[number]
    return f"{one.flags}: fits, {memory_bytes(one.free_at_peak_bytes)} free at the peak, {one.cost}"
