"""A record of a start, on the ghost or a GPU, as the report that every view shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.devices.readings import OutOfMemory, parse_out_of_memory
from runtime.record import parts
from runtime.record.record import Record
from runtime.start.run_record import Failure, Phase, Run
from sgl_tune.memory.ghost.ranks import layout_of
from sgl_tune.memory.report import MemoryReport, Sizes, Source

ROOT = "start"  # the phase around all others, which no view shows
NAMES = {"eager": "eager buffers"}
SOURCES: dict[str, Source] = {"ghost": "ghost", "measured": "measured"}
_DRIVERS = "CUDA error: out of memory"  # torch's text where memory outside it was refused
COMPILED = "torch.compile"  # the store of kernels that it times where they are not there
_SILENT = "SGLang refused the command without a word"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_OURS = ("/runtime/sglang/inside/", "/runtime/ghost/inside/")


def report_of(record: Record, gpu: str, gpu_bytes: int, title: str, margin_bytes: int) -> MemoryReport:
    """`margin_bytes`: the error bar of what lies outside torch; a measured record has none."""
    sizes, at, layout = record.sizes, record.ending.at, layout_of(record)
    seen = next(iter(record.phases), at)
    stack = stack_of(record.ending)
    return MemoryReport(
        gpu=gpu,
        total_bytes=seen.total if seen else gpu_bytes,
        source=SOURCES[record.asked.source],
        run=Run({}, tuple(_phase(one) for one in record.phases if one.name != ROOT), _failure(record), ()),
        rank=record.asked.rank,
        rank_name=layout.name(record.asked.rank),
        sizes=_sizes(sizes) if sizes else _resolved(record.arguments),
        margin_bytes=margin_bytes,
        title=title,
        subtitle=_subtitle(record),
        flags=" ".join(record.asked.argv),
        refused=_refusal(record.ending),
        stack=stack,
        exact=record.exact,
        inexact=tuple(map(_why, record.inexact)),
        cage_lacks=record.asked.lacking,
        notes=(
            *_without_graphs(record),
            *_timed_kernels(record),
            *_without_multicast(record),
            *(f"not in the record: {lack}" for lack in record.lacks),
        ),
    )


def _timed_kernels(record: Record) -> tuple[str, ...]:
    timed = sum(one.store == COMPILED and not one.found for one in record.files)
    if not timed:
        return ()
    kernels = "1 kernel" if timed == 1 else f"{timed} kernels"
    return (
        f"torch.compile's cache is taken to be empty: a server that finds {kernels} there may peak lower",
    )


def _without_multicast(record: Record) -> Iterator[str]:
    """Whether a host has it is in no flag; the starts that the table is fitted to ran where it is off."""
    if record.asked.source == "ghost" and any(
        count for name, count in record.counted.items() if name.startswith("communicators_")
    ):
        yield "the host's NVLink multicast is taken to be off: where it is on, collectives may take more"


def _without_graphs(record: Record) -> Iterator[str]:
    """Graphs that a server gives up by itself are in no flag."""
    for one in record.phases:
        if one.name == "prefill graphs" and one.allocated_before == one.allocated == one.peak:
            yield "no prefill graphs were captured: disabled, or given up where too little is free"


def _why(one: parts.Inexact) -> str:
    if one.kind == "command":
        return f"without {one.name} of the command: {one.why}"
    where = f" in {NAMES.get(one.phase, one.phase)}" if one.phase else ""
    return f"{one.name}{where}: {one.why}"


def stack_of(ending: parts.Ending) -> tuple[str, ...]:
    """The calls that led to the end, of the server's packages and no others."""
    return tuple(
        _PACKAGES.sub("", frame) for frame in ending.stack if not any(ours in frame for ours in _OURS)
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
    if ending.how != "died":
        return None
    text, name = ending.text or "", ending.phase or ROOT
    at = _phase(ending.at) if ending.at is not None else _last(record, name)
    oom = parse_out_of_memory(text, _where(ending))
    if oom is None and _DRIVERS in text:
        unused = at.reserved_bytes - at.allocated_bytes
        oom = OutOfMemory(
            tried_bytes=0,
            free_bytes=ending.at.free if ending.at else at.free_at_peak_bytes,
            total_bytes=ending.at.total if ending.at else 0,
            allocated_bytes=at.allocated_bytes,
            reserved_unallocated_bytes=unused,
            where=_where(ending),
            by_driver=True,
        )
    return Failure(NAMES.get(name, name), f"{ending.type}: {text}", oom, at)


def _last(record: Record, name: str) -> Phase:
    """An end between the phases: memory is what the last one left."""
    if not record.phases:
        return Phase(name, 0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0)
    last = record.phases[-1]
    return _phase(parts.Phase(**{**vars(last), "name": name, "depth": 1}))


def _where(ending: parts.Ending) -> str:
    """The innermost call in SGLang's own code."""
    own = [frame for frame in stack_of(ending) if frame.startswith("sglang/")]
    return own[-1].removeprefix("sglang/") if own else ""


def _refusal(ending: parts.Ending) -> str:
    """SGLang's own words, where it refused the command."""
    if ending.how != "refused":
        return ""
    lines = (ending.text or "").strip().splitlines()
    said = lines[-1] if lines else _SILENT
    return said if ending.type in (None, "SystemExit") else f"{ending.type}: {ending.text}"


def _sizes(sizes: parts.Sizes) -> Sizes:
    return Sizes(
        mem_fraction_static=sizes.mem_fraction_static,
        kv_tokens=sizes.kv_tokens,
        context_length=sizes.context_length,
        max_running_requests=sizes.max_running_requests,
        chunked_prefill_size=sizes.chunked_prefill_size,
    )


def _resolved(arguments: Mapping[str, Any]) -> Sizes:
    """As far as SGLang's arguments say, of a start that did not become ready."""
    fraction, chunk = arguments.get("mem_fraction_static"), arguments.get("chunked_prefill_size")
    return Sizes(
        mem_fraction_static=fraction if isinstance(fraction, float) else None,
        chunked_prefill_size=chunk if isinstance(chunk, int) and chunk > 0 else None,
    )


def _subtitle(record: Record) -> str:
    sglang, layout = record.asked.versions.get("sglang", "?"), layout_of(record)
    ranks = f"rank {record.asked.rank} of {layout.ranks}"
    return f"{ranks}, SGLang {sglang}" + (", on the ghost" if record.asked.source == "ghost" else "")
