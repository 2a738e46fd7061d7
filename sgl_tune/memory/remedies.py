"""Find changes with which a server that ran out of memory would start, the cheapest first. Each remedy is
tried in a complete simulated start. Of each kind of change, the smallest that fits is kept. A remedy's
price is the share of the service that it costs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.server.errors import ConfigError
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.report import MemoryReport, Remedy
from sgl_tune.memory.starting import Change, Layout, Started, Starter, change_of
from sgl_tune.units import memory_bytes

MOST_SECONDS = 60.0  # CPU seconds, after which no further start begins
_LOADING = ("communicator", "weights", "draft weights")
_POOLS = ("kv pool", "draft kv pool")
_GRAPHS = ("graphs", "decode graphs", "draft graphs", "draft decode graphs", "prefill graphs")
_PREFILLS = ("autotune", "kernel warmup", "eager buffers", "prefill graphs")
_LOWER = (0.0, 0.02, 0.05)  # below the fraction that lacks nothing
_FEWEST_REQUESTS, _SHORTEST_CHUNK, _SHORTEST_CONTEXT = 64, 512, 8192
_TABLE_ENTRY = 4  # bytes per request and token of the context
_ABSURD = 0.02  # share of the GPU for the table of requests


@dataclass(frozen=True, slots=True)
class Attempt:
    """A change to try. `price`: from 0 (free) to 1 (the whole service); None: computed from the lost KV
    tokens."""

    changes: Mapping[str, Any]
    price: float | None = None
    cost: str = ""


def helpful(first: Started, starter: Starter) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    """Return the remedies that fit, the cheapest first, and the flags that there was no time to try."""
    report, spent = first.report, 0.0
    found: list[tuple[float, Remedy]] = []
    left: list[str] = []
    for kind in attempts_for(report, first.layout):
        for attempt in kind:
            change = change_of(attempt.changes, starter.release)
            if spent >= MOST_SECONDS:
                left.append(change.line)
                break
            outcome = _tried(starter, change)
            if outcome is None:
                continue
            spent += outcome.seconds
            if outcome.report.verdict == "fits" and not outcome.report.is_inside_bar:
                found.append(_remedy(change, attempt, report, outcome.report, starter))
                break
    return tuple(remedy for _, remedy in sorted(found, key=lambda one: one[0])), tuple(left)


def _tried(starter: Starter, change: Change) -> Started | None:
    """Start with a change. Return None if the server refuses the change or the start breaks off."""
    try:
        return starter.start(change)
    except (ConfigError, UsageError, WorkFailed):
        return None


def attempts_for(report: MemoryReport, layout: Layout) -> list[list[Attempt]]:
    """Return the changes to try, one list per kind, the smallest change of each kind first."""
    failed = (report.run.failed_in or "").removeprefix("draft ")
    if failed in _POOLS and report.oom is None:
        return [[*_higher(report)], [*_more_gpus(layout)]]
    if report.oom is None:
        return []
    if failed in _LOADING:
        return [[*_more_gpus(layout)]]
    kinds = [[*_shorter_context(report)], [*_lower(report)]]
    if failed in _PREFILLS:
        kinds += [[*_chunks(report, layout)], [*_requests(report, layout)]]
    if failed in _GRAPHS:
        kinds.append(
            [Attempt({"disable_cuda_graph": True}, 0.9, "no CUDA graphs: every decode step is slower")]
        )
    return [kind for kind in kinds if kind]


def _remedy(
    change: Change, attempt: Attempt, before: MemoryReport, after: MemoryReport, starter: Starter
) -> tuple[float, Remedy]:
    tokens, lost = after.sizes.kv_tokens, _lost(before, after)
    cost = attempt.cost or f"{tokens or 0:,} KV tokens per rank"
    if attempt.price is None and lost is not None and lost > 0:
        cost = f"{100 * lost:.0f} % fewer KV tokens" + (f" ({tokens:,} per rank)" if tokens else "")
    price = attempt.price if attempt.price is not None else lost or 0.0
    return price, Remedy(change.line, after.free_at_peak_bytes, tokens, cost, starter.command(change))


def _lost(before: MemoryReport, after: MemoryReport) -> float | None:
    """Return the share of the KV cache that `after` lacks against `before`."""
    held = [report.sizes.kv_tokens or 0 for report in (before, after)]
    if not all(held):
        pools = [report.phase("kv pool") for report in (before, after)]
        held = [pool.persistent_bytes if pool is not None else 0 for pool in pools]
    return 1 - held[1] / held[0] if held[0] > 0 else None


def _missing(report: MemoryReport) -> int:
    """Return the missing bytes plus the error bar. A refusal of the driver names no size and counts as 0."""
    return (report.missing_bytes or 0) + report.margin_bytes


def _shorter_context(report: MemoryReport) -> Iterator[Attempt]:
    """Yield shorter contexts if the table of requests is large: it has a column per token of the context."""
    context, requests = report.sizes.context_length or 0, report.sizes.max_running_requests or 0
    table = context * requests * _TABLE_ENTRY
    if table < _ABSURD * report.total_bytes:
        return
    for shorter in (context // 2, context // 4, context // 8, context // 16):
        if shorter >= _SHORTEST_CONTEXT and table * (1 - shorter / context) >= _missing(report):
            takes = f"the table of {requests:,} requests of {context:,} tokens takes {memory_bytes(table)}"
            yield Attempt(
                {"context_length": shorter}, 0.05, f"requests of at most {shorter:,} tokens; {takes}"
            )


def _lower(report: MemoryReport) -> Iterator[Attempt]:
    """Yield memory fractions that are lower by the missing bytes."""
    fraction = report.sizes.mem_fraction_static
    if fraction is None:
        return
    least = math.floor((fraction - _missing(report) / (report.total_bytes or 1)) * 100) / 100
    for less in _LOWER:
        value = round(min(least, fraction - 0.01) - less, 2)
        if value > 0:
            yield Attempt({"mem_fraction_static": value})


def _higher(report: MemoryReport) -> Iterator[Attempt]:
    """Yield higher memory fractions if the weights leave no room for the KV pool."""
    weights = report.phase("weights")
    fraction = report.sizes.mem_fraction_static
    if weights is None or fraction is None:
        return
    taken = weights.allocated_bytes / max(1, report.total_bytes - weights.non_torch_bytes)
    for value in (0.95, 0.9, 0.85, 0.8):
        if value > max(fraction, taken + 0.01):
            yield Attempt({"mem_fraction_static": value}, 0.0)


def _chunks(report: MemoryReport, layout: Layout) -> Iterator[Attempt]:
    chunk = report.sizes.chunked_prefill_size or 0
    for size, price in ((chunk // 2, 0.3), (chunk // 4, 0.4)):
        if size >= _SHORTEST_CHUNK:
            cost = f"prefills in chunks of {size:,} tokens per rank, not {chunk:,}"
            yield Attempt({"chunked_prefill_size": size * layout.dp}, price, cost)


def _requests(report: MemoryReport, layout: Layout) -> Iterator[Attempt]:
    """Yield fewer requests, because the dummy batch has a row per running request."""
    now = report.sizes.max_running_requests
    for requests in (1024, 256, _FEWEST_REQUESTS):
        if now is None or requests < now:
            price = max(0.5, 1 - requests / now if now else 0.0)
            cost = f"at most {requests:,} requests at once per rank" + (f", not {now:,}" if now else "")
            yield Attempt({"max_running_requests": requests * layout.dp}, price, cost)


def _more_gpus(layout: Layout) -> Sequence[Attempt]:
    return [
        Attempt({"tp_size": layout.tp * times}, times, f"{layout.ranks * times} GPUs, not {layout.ranks}")
        for times in (2, 4)
    ]
