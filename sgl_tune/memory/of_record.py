"""A record of a start, on the ghost or a GPU, as the report that every view shows."""

from __future__ import annotations

from runtime.devices.readings import parse_out_of_memory
from runtime.record import parts
from runtime.record.record import Record
from runtime.start.run_record import Failure, Phase, Run
from sgl_tune.memory.report import MemoryReport, Sizes, Source

ROOT = "start"  # the phase around all others, which no view shows
NAMES = {"eager": "eager buffers"}
SOURCES: dict[str, Source] = {"ghost": "ghost", "measured": "measured"}


def report_of(record: Record, gpu: str, title: str, margin_bytes: int) -> MemoryReport:
    """`margin_bytes`: the error bar of what lies outside torch; a measured record has none."""
    sizes, at = record.sizes, record.ending.at
    total = record.phases[0].total if record.phases else at.total if at else 0
    return MemoryReport(
        gpu=gpu,
        total_bytes=total,
        source=SOURCES[record.asked.source],
        run=Run({}, tuple(_phase(one) for one in record.phases if one.name != ROOT), _failure(record), ()),
        rank=record.asked.rank,
        rank_name=f"TP{record.asked.rank}",
        sizes=_sizes(sizes) if sizes else Sizes(),
        margin_bytes=margin_bytes,
        title=title,
        subtitle=_subtitle(record),
        flags=" ".join(record.asked.argv),
        never_starts=_refusal(record),
        exact=record.exact,
        inexact=tuple(f"{one.name} in {one.phase}: {one.why}" for one in record.inexact),
    )


def _phase(one: parts.Phase) -> Phase:
    return Phase(
        name=NAMES.get(one.name, one.name),
        depth=max(0, one.depth - 1),
        seconds=one.seconds,
        persistent_bytes=one.allocated - one.allocated_before,
        peak_bytes=one.peak,
        transient_bytes=one.peak - one.allocated,
        allocated_bytes=one.allocated,
        reserved_bytes=one.reserved,
        reserved_peak_bytes=one.reserved_peak,
        free_at_peak_bytes=one.total - one.outside - one.reserved_peak,
        non_torch_bytes=one.outside,
    )


def _failure(record: Record) -> Failure | None:
    ending = record.ending
    if ending.how != "died" or ending.at is None or ending.phase is None:
        return None
    text = ending.text or ""
    oom = parse_out_of_memory(text, _where(ending.stack))
    return Failure(ending.phase, f"{ending.type}: {text}", oom, _phase(ending.at))


def _where(stack: tuple[str, ...]) -> str:
    """The innermost call in SGLang's own code."""
    own = [frame for frame in stack if "/sglang/" in frame and "/runtime/" not in frame]
    return own[-1].rpartition("/sglang/")[2] if own else ""


def _refusal(record: Record) -> str:
    """SGLang's own words, where it refused the command or ended in another way than by memory."""
    ending = record.ending
    if ending.how == "refused":
        return _last_line(ending.text)
    return ""


def _last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else "SGLang refused the command without a word"


def _sizes(sizes: parts.Sizes) -> Sizes:
    return Sizes(
        mem_fraction_static=sizes.mem_fraction_static,
        kv_tokens=sizes.kv_tokens,
        context_length=sizes.context_length,
        max_running_requests=sizes.max_running_requests,
        chunked_prefill_size=sizes.chunked_prefill_size,
    )


def _subtitle(record: Record) -> str:
    sglang = record.asked.versions.get("sglang", "?")
    tp, pp = record.arguments.get("tp_size", 1), record.arguments.get("pp_size", 1)
    return f"rank {record.asked.rank} of {tp * pp}, SGLang {sglang}, on the ghost"
