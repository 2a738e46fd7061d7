"""What would let a start that dies fit: every remedy is itself a predicted start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.flags.spelling import spelled
from runtime.server.releases import Release
from sgl_tune.errors import UsageError
from sgl_tune.memory.predict import together
from sgl_tune.memory.report import MemoryReport, Remedy, worst
from sgl_tune.memory.start import Start

Predict = Callable[[Sequence[Start]], list[MemoryReport]]
_HIGHEST_FRACTION = 0.97
_AT_ONCE = 2
_MOST_RANKS = 64
_LOADING = ("communicator", "weights", "draft weights")
_GRAPHS = ("prefill graphs", "decode graphs", "draft graphs")


@dataclass(frozen=True, slots=True)
class Attempt:
    """`changes` by SGLang's names; a server that refuses them is not tried."""

    changes: Mapping[str, Any]
    cost: str = ""

    def flags(self, release: Release) -> str:
        values = {name: f"{v:.2f}" if isinstance(v, float) else v for name, v in self.changes.items()}
        return " ".join(spelled(release, name, value) for name, value in values.items())

    def of(self, starts: Sequence[Start]) -> list[Start]:
        try:
            return [start.asking(**self.changes) for start in starts]
        except ConfigError:
            return []


def remedies(starts: Sequence[Start], report: MemoryReport, predict: Predict) -> tuple[Remedy, ...]:
    """Of each kind the mildest that fits all kinds of ranks; those that keep most of the KV cache first."""
    start = starts[0]
    if report.run.failed_in in _LOADING:
        kinds: tuple[list[Attempt], ...] = (_ranks(start),)
    else:
        kinds = (
            _fractions(report),
            _requests(start, report),
            _chunks(start, report),
            _graphs(report),
            _ranks(start) if report.oom is None else [],
        )
    found = [remedy for attempts in kinds if (remedy := _first_that_fits(attempts, starts, report, predict))]
    return tuple(sorted(found, key=lambda remedy: -(remedy.kv_tokens or 0)))


def _first_that_fits(
    attempts: Sequence[Attempt], starts: Sequence[Start], report: MemoryReport, predict: Predict
) -> Remedy | None:
    for i in range(0, len(attempts), _AT_ONCE):
        tried = [(attempt, of) for attempt in attempts[i : i + _AT_ONCE] if (of := attempt.of(starts))]
        for (attempt, _), outcome in zip(tried, _outcomes([of for _, of in tried], predict), strict=True):
            if outcome is None:
                continue
            if outcome.verdict == "fits" and outcome.free_at_peak_bytes > outcome.margin_bytes:
                return Remedy(
                    flags=attempt.flags(starts[0].deployment.server.release),
                    free_at_peak_bytes=outcome.free_at_peak_bytes,
                    kv_tokens=outcome.sizes.kv_tokens,
                    cost=", ".join(filter(None, (attempt.cost, _kv_change(outcome, report)))),
                )
    return None


def _outcomes(servers: Sequence[Sequence[Start]], predict: Predict) -> list[MemoryReport | None]:
    """The worst rank of each; None of a server that cannot be laid out so: its heads over so many ranks."""
    try:
        return [worst(reports) for reports in together(servers, predict)]
    except UsageError:
        if len(servers) == 1:
            return [None]
        return [outcome for starts in servers for outcome in _outcomes([starts], predict)]


def _kv_change(outcome: MemoryReport, report: MemoryReport) -> str:
    before, after = report.sizes.kv_tokens, outcome.sizes.kv_tokens
    if not before or not after:
        return f"{after:,} KV tokens" if after else ""
    percent = round(100 * (after / before - 1))
    return f"{abs(percent)} % {'more' if percent > 0 else 'less'} KV" if percent else "as much KV"


def _ranks(start: Start) -> list[Attempt]:
    """Weights that do not fit, or that leave the pool nothing, are shared by more GPUs."""
    tp, world = start.parallel.tp, start.parallel.world_size
    times = [2**n for n in range(1, 7) if world * 2**n <= _MOST_RANKS]
    return [Attempt({"tp_size": tp * n}, f"on {world * n} GPUs, not {world}") for n in times]


def _fractions(report: MemoryReport) -> list[Attempt]:
    """Lower where memory ran out, by what was missing; where the pool had no room, the highest that fits."""
    fraction = report.sizes.mem_fraction_static
    if fraction is None:
        return []
    if report.oom is not None:
        missing = report.oom.tried_bytes - report.oom.free_bytes + report.margin_bytes
        first = min(fraction - 0.01, fraction - missing / report.total_bytes + 0.01)
        values = [_hundredth(first) - step / 100 for step in (0, 1, 2, 3, 5, 8, 12, 18)]
    else:
        weights = report.phase("weights")
        taken = weights.allocated_bytes / (report.total_bytes - weights.non_torch_bytes) if weights else 1.0
        least = _hundredth(max(fraction, taken)) + 0.01
        values = [value for value in (0.95, 0.92, 0.9, 0.88, 0.86, 0.83, 0.8, 0.75, 0.7) if value > least]
    return [
        Attempt({"mem_fraction_static": round(value, 2)})
        for value in values
        if 0 < value <= _HIGHEST_FRACTION
    ]


def _hundredth(value: float) -> float:
    return math.floor(value * 100 + 1e-9) / 100


def _requests(start: Start, report: MemoryReport) -> list[Attempt]:
    """The dummy batch has a row for each request that may run; the flag counts those of all DP ranks."""
    now = report.sizes.max_running_requests
    if now is None or report.run.failed_in not in ("eager buffers", "autotune", *_GRAPHS):
        return []
    ranks = start.parallel.attn_dp
    return [
        Attempt(
            {"max_running_requests": requests * ranks},
            f"at most {requests:,} requests at once on a rank, not {now:,}",
        )
        for requests in (2048, 1024, 512, 256, 128, 64, 32)
        if requests < now
    ]


def _chunks(start: Start, report: MemoryReport) -> list[Attempt]:
    chunk = report.sizes.chunked_prefill_size
    if chunk is None or report.run.failed_in not in ("autotune extend", "prefill graphs"):
        return []
    ranks = start.parallel.attn_dp
    return [
        Attempt(
            {"chunked_prefill_size": size * ranks},
            f"prefills of {size:,} tokens at a time on a rank, not {chunk:,}",
        )
        for size in (chunk // 2, chunk // 4)
        if size >= 256
    ]


def _graphs(report: MemoryReport) -> list[Attempt]:
    if report.run.failed_in not in _GRAPHS:
        return []
    largest = max(report.sizes.decode_graphs, default=0)
    smaller = [
        Attempt(
            {"cuda_graph_max_bs": size},
            f"decode batches over {size} run without a graph",
        )
        for size in (largest // 2, largest // 4)
        if size and report.run.failed_in != "prefill graphs"
    ]
    return [*smaller, Attempt({"disable_cuda_graph": True}, "every batch runs without a graph")]
