"""The changes that would have helped a server that ran out of memory, cheapest first, from its log alone.

Numbers follow from the log's own; a flag is only named where the log shows that the release has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sgl_tune.server_log.cause import GRAPHS, OCCUPIED, fraction_of
from sgl_tune.server_log.rank_log import Cause, ServerLog
from sgl_tune.units import memory_bytes

_SPARE = 256 << 20  # beyond what was short
_HIGHEST = 0.97
_GROW = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
# By phase: the flag for fewer graphs and the flag for none, with the fields by which a release shows them.
_FEWER = {
    "prefill graphs": ("cuda_graph_max_bs_prefill", "piecewise_cuda_graph_max_tokens"),
    "decode graphs": ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"),
    "draft graphs": ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"),
}
_NONE = {
    "prefill graphs": (
        ("disable_prefill_cuda_graph", "--disable-prefill-cuda-graph"),
        ("disable_piecewise_cuda_graph", "--disable-piecewise-cuda-graph"),
    ),
    "decode graphs": (
        ("cuda_graph_backend_decode", "--cuda-graph-backend-decode=disabled"),
        ("disable_cuda_graph", "--disable-cuda-graph"),
    ),
}
_NONE["draft graphs"] = _NONE["decode graphs"]
_AFTER_POOL = ("attention backend", "autotune", "after autotune", "ready", "after kv pool", *GRAPHS)


@dataclass(frozen=True, slots=True)
class LogRemedy:
    """`flags` are to be pasted, "" where no flag does it."""

    change: str
    flags: str = ""
    cost: str = ""

    def line(self) -> str:
        return f"{self.flags or self.change}: {self.cost}" if self.cost else self.flags or self.change


def remedies_of(log: ServerLog, cause: Cause | None) -> tuple[LogRemedy, ...]:
    if cause is None or not log.ended_by_memory:
        return ()
    if cause.what == OCCUPIED:
        return (LogRemedy(cause.way_out), *_lower_fraction(log))
    if log.refusal and log.oom is None:
        found = [*_raise_fraction(log), *_more_ranks(log)]
        return tuple(found) or (LogRemedy(cause.way_out),)
    found = [
        *_unfragmented(cause),
        *_lower_fraction(log),
        *_graphs(log),
        *_smaller_chunk(log),
        *_weights(log),
    ]
    pasted = " ".join(remedy.flags for remedy in found)
    if found and all(flag in pasted for flag in re.findall(r"--[a-z-]+|[A-Z_]{8,}", cause.way_out)):
        return tuple(found)
    return (*found, LogRemedy(f"also: {cause.way_out}" if found else cause.way_out))


def _unfragmented(cause: Cause) -> Iterator[LogRemedy]:
    if _GROW in cause.way_out:
        yield LogRemedy("let torch's segments grow", _GROW, "an environment variable, costs no memory")


def _lower_fraction(log: ServerLog) -> Iterator[LogRemedy]:
    """By what was short, if torch told, and something to spare."""
    oom, fraction = log.oom, fraction_of(log)
    base = log.lead.baseline_bytes or (oom.numbers.total_bytes if oom and oom.numbers else 0)
    if oom is None or oom.numbers is None or fraction is None or not base:
        return
    if _phase(oom.phase) not in _AFTER_POOL and oom.phase != "kv pool":
        return
    short = max(0, oom.numbers.tried_bytes - oom.numbers.free_bytes)
    lower = math.floor(100 * (fraction - (short + _SPARE) / base) + 1e-9) / 100
    if lower <= 0:
        return
    freed = round((fraction - lower) * base)
    pool = log.lead.kv_bytes or max((rank.kv_bytes or 0 for rank in log.ranks), default=0)
    kv = f", {100 * freed / pool:.1f} % less KV cache" if pool else ", taken from the KV cache"
    short_by = f"where {memory_bytes(short)} were short" if short else "where torch's pieces were too small"
    yield LogRemedy(
        "lower the fraction",
        f"--mem-fraction-static {lower:g}",
        f"frees {memory_bytes(freed)} {short_by}{kv}",
    )


def _raise_fraction(log: ServerLog) -> Iterator[LogRemedy]:
    """Just beyond what the weights take: SGLang's own bound."""
    loaded = [step for step in log.lead.steps if step.phase in ("weights", "draft weights")]
    base, free = log.lead.baseline_bytes, loaded[-1].free_bytes if loaded else None
    if not base or free is None or "unbalanced" in log.refusal:
        return
    least = 1 - free / base
    higher = math.floor(100 * least) / 100 + 0.02
    if higher > _HIGHEST:
        return
    pool = memory_bytes(round((higher - least) * base))
    left = memory_bytes(round((1 - higher) * base))
    yield LogRemedy(
        "raise the fraction",
        f"--mem-fraction-static {higher:.2f}",
        f"{pool} for the KV cache, {left} left for graphs and activations",
    )


def _graphs(log: ServerLog) -> Iterator[LogRemedy]:
    phase = _phase(log.oom.phase) if log.oom else ""
    if phase not in GRAPHS:
        return
    for field in _FEWER[phase]:
        largest = _number(log, field)
        if largest is not None and largest > 1:
            flag = f"--{field.replace('_', '-')} {largest // 2}"
            what = "tokens" if phase == "prefill graphs" else "requests"
            yield LogRemedy(
                "capture fewer graphs", flag, f"batches over {largest // 2:,} {what} run without a graph"
            )
            break
    for field, flag in _NONE[phase]:
        if _has(log, field):
            yield LogRemedy(f"capture no {phase}", flag, f"runs without {phase}: slower")
            break


def _smaller_chunk(log: ServerLog) -> Iterator[LogRemedy]:
    chunk = _number(log, "chunked_prefill_size")
    if log.oom is not None and log.oom.phase == "ready" and chunk is not None and chunk >= 1024:
        yield LogRemedy(
            "prefill less at a time", f"--chunked-prefill-size {chunk // 2}", "long prompts take more steps"
        )


def _weights(log: ServerLog) -> Iterator[LogRemedy]:
    if log.oom is not None and log.oom.phase in ("weights", "draft weights"):
        yield from _more_ranks(log)


def _more_ranks(log: ServerLog) -> Iterator[LogRemedy]:
    tp = _number(log, "tp_size")
    if tp is not None and "unbalanced" not in log.refusal:
        yield LogRemedy(
            "spread the weights",
            f"--tp {2 * tp}",
            f"{2 * tp} ranks instead of {tp}; not checked against the model",
        )


def _phase(phase: str) -> str:
    return phase.removeprefix("after ") if phase.removeprefix("after ") in GRAPHS else phase


def _has(log: ServerLog, field: str) -> bool:
    return re.search(rf"[(,{{ ]'?{field}'?[=:]", log.server_args or "") is not None


def _number(log: ServerLog, field: str) -> int | None:
    found = re.search(rf"[(,{{ ]'?{field}'?[=:] ?(\d{{1,9}})\b", log.server_args or "")
    return int(found[1]) if found else None
