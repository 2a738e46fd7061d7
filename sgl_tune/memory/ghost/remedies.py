"""What would let a server start that ran out of memory: each remedy is a whole start of its own.

Of each kind the mildest that fits. Kinds come in the order of what they cost: some of the KV cache, then what
runs at once, then graphs, then more GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.memory.ghost.ranks import Layout
from sgl_tune.memory.report import MemoryReport, Remedy
from sgl_tune.memory.trial import flag_line

MOST_SECONDS = 60.0  # of CPU; what is under way then is finished
_LOADING = ("communicator", "weights", "draft weights")
_POOLS = ("kv pool", "draft kv pool")
_GRAPHS = ("graphs", "decode graphs", "draft graphs", "draft decode graphs")
_PREFILLS = ("autotune", "kernel warmup", "eager buffers", "prefill graphs")
_LOWER = (0.0, 0.02, 0.05)  # below the fraction that lacks nothing
_FEWEST_REQUESTS, _SHORTEST_CHUNK = 64, 512

# Starts the server with these flags: the worst rank's report, and the seconds of CPU that it took.
Start = Callable[[Mapping[str, Any]], tuple[MemoryReport, float]]


@dataclass(frozen=True, slots=True)
class Attempt:
    changes: Mapping[str, Any]
    cost: str = ""


def attempts_for(report: MemoryReport, layout: Layout) -> list[list[Attempt]]:
    """Of each kind the mildest first; none of a start that did not end for want of memory."""
    failed = (report.run.failed_in or "").removeprefix("draft ")
    if failed in _POOLS and report.oom is None:
        return [[*_higher(report)], [*_more_gpus(layout)]]
    if report.oom is None:
        return []
    if failed in _LOADING:
        return [[*_more_gpus(layout)]]
    kinds = [[*_lower(report)]]
    if failed in _PREFILLS:
        kinds += [[*_chunks(report, layout)], [*_requests(report, layout)]]
    if failed in _GRAPHS or failed == "prefill graphs":
        kinds.append([Attempt({"disable_cuda_graph": True}, "every batch runs without a graph")])
    return kinds


def helpful(
    report: MemoryReport, layout: Layout, release: Release, start: Start
) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    """What fits, with most of the KV cache first, and the flags that there was no time to try."""
    found: list[Remedy] = []
    left: list[str] = []
    spent = 0.0
    for kind in attempts_for(report, layout):
        for attempt in kind:
            flags = flag_line(dict(attempt.changes), release)
            if spent >= MOST_SECONDS:
                left.append(flags)
                break
            outcome, seconds = start(attempt.changes)
            spent += seconds
            if outcome.verdict == "fits" and not outcome.is_inside_bar:
                found.append(_remedy(flags, attempt, outcome))
                break
    return tuple(sorted(found, key=lambda one: -(one.kv_tokens or 0))), tuple(left)


def _remedy(flags: str, attempt: Attempt, outcome: MemoryReport) -> Remedy:
    tokens = outcome.sizes.kv_tokens
    room = f"{tokens:,} KV tokens a rank" if tokens else ""
    cost = ", ".join(filter(None, (attempt.cost, room)))
    return Remedy(flags, outcome.free_at_peak_bytes, tokens, cost)


def _lower(report: MemoryReport) -> Iterator[Attempt]:
    """By what was missing, with the error bar; what the driver refused names no size."""
    fraction = report.sizes.mem_fraction_static
    if fraction is None:
        return
    missing = (report.missing_bytes or 0) + report.margin_bytes
    least = math.floor((fraction - missing / (report.total_bytes or 1)) * 100) / 100
    for less in _LOWER:
        value = round(min(least, fraction - 0.01) - less, 2)
        if value > 0:
            yield Attempt({"mem_fraction_static": value})


def _higher(report: MemoryReport) -> Iterator[Attempt]:
    """Weights leave nothing of the fraction: one that leaves the pool something."""
    weights = report.phase("weights")
    fraction = report.sizes.mem_fraction_static
    if weights is None or fraction is None:
        return
    taken = weights.allocated_bytes / max(1, report.total_bytes - weights.non_torch_bytes)
    for value in (0.95, 0.9, 0.85, 0.8):
        if value > max(fraction, taken + 0.01):
            yield Attempt({"mem_fraction_static": value})


def _chunks(report: MemoryReport, layout: Layout) -> Iterator[Attempt]:
    chunk = report.sizes.chunked_prefill_size or 0
    for size in (chunk // 2, chunk // 4):
        if size >= _SHORTEST_CHUNK:
            cost = f"prefills of {size:,} tokens at a time on a rank, not {chunk:,}"
            yield Attempt({"chunked_prefill_size": size * layout.dp}, cost)


def _requests(report: MemoryReport, layout: Layout) -> Iterator[Attempt]:
    """The dummy batch has a row for each request that may run, of which a start that died names no number."""
    now = report.sizes.max_running_requests
    for requests in (1024, 256, _FEWEST_REQUESTS):
        if now is None or requests < now:
            cost = f"at most {requests:,} requests at once on a rank"
            yield Attempt({"max_running_requests": requests * layout.dp}, cost)


def _more_gpus(layout: Layout) -> Iterator[Attempt]:
    for times in (2, 4):
        cost = f"on {layout.ranks * times} GPUs, not {layout.ranks}"
        yield Attempt({"tp_size": layout.tp * times}, cost)
