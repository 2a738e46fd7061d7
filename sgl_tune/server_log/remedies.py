"""Changes that would have helped a server that ran out of memory, the cheapest first, from its log alone.
The numbers are computed from the log's. A flag is printed only if the log shows that the release has it."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sgl_tune.server_log.cause import SERVING, Cause, fraction_of, graphs_or, least_fraction
from sgl_tune.server_log.ends import EITHER_GRAPHS
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.marks import GRAPHS
from sgl_tune.units import memory_bytes

_SPARE = 256 << 20  # a reserve beside the missing bytes
# For each phase: the fields of server_args for fewer graphs, and those for none.
_FEWER = {"prefill graphs": ("cuda_graph_max_bs_prefill", "piecewise_cuda_graph_max_tokens")}
_NONE = {"prefill graphs": ("disable_prefill_cuda_graph", "disable_piecewise_cuda_graph")}
_AFTER_POOL = ("kv pool", "after kv pool", "attention backend", "autotune", "after autotune",
               *SERVING, *GRAPHS, EITHER_GRAPHS)  # fmt: skip
# A log that just ends shows neither whether the server still runs nor how it ended.
_HANGS = ("`py-spy dump --pid PID` shows what each rank waits for, if the server still runs",
          "`kubectl logs --previous` or `dmesg -T` may show how it ended, if it did")  # fmt: skip
_WAITS = {"communicator": ("the ranks wait for each other: look at the logs of the other nodes; "
                           "NCCL_SOCKET_IFNAME must name the interface that connects them",)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogRemedy:
    """A change that would have helped. `flags`: to paste, or "" if no flag does it. `price`: what it costs
    the service, on the same scale as the percent of the KV cache that a lower fraction takes."""

    change: str
    flags: str = ""
    cost: str = ""
    price: float = 0

    def line(self) -> str:
        return f"{self.flags or self.change} ({self.cost})" if self.cost else self.flags or self.change

    def to_json(self) -> dict[str, str]:
        return {"change": self.change, "flags": self.flags, "cost": self.cost}


def remedies_of(log: ServerLog, cause: Cause | None) -> tuple[LogRemedy, ...]:
    if log.death is not None and not log.ended_by_memory:
        kind, way_out = log.death.kind, log.death.kind.way_out
        if way_out.endswith("above this line") and (
            log.death.line == 1 or kind.at_start > bool(log.death.frames)
        ):
            way_out = "the log lacks its traceback: look for an earlier part of the log"
        return (LogRemedy(way_out, kind.paste, way_out if kind.paste else ""),)
    if log.death is None and not log.is_ready:
        return tuple(map(LogRemedy, (*_WAITS.get(log.lead.phase, ()), *_HANGS)))
    found: list[LogRemedy] = []
    for name in cause.changes if cause else ():
        numbered, otherwise = _CHANGES[name]
        found += [*(numbered(log) if numbered else ())] or ([LogRemedy(otherwise)] if otherwise else [])
    if cause and "occupied" in cause.changes:
        return tuple(found)
    return tuple(sorted(found, key=lambda one: (not one.flags, one.price)))


def _segments(log: ServerLog) -> Iterator[LogRemedy]:
    grow = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    yield LogRemedy("let torch's segments grow", grow, "an environment variable, costs no memory")


def _lower_fraction(log: ServerLog) -> Iterator[LogRemedy]:
    """Yield a fraction that is lower by the missing memory in torch's message and a reserve."""
    oom, fraction = log.oom, fraction_of(log)
    numbers = oom.numbers if oom else None
    base = log.lead.baseline_bytes or (numbers.total_bytes if numbers else 0)
    if oom is None or numbers is None or fraction is None or not base:
        return
    short = max(0, numbers.tried_bytes - numbers.free_bytes)
    lower = math.floor(100 * (fraction - (short + _SPARE) / base) + 1e-9) / 100
    if graphs_or(oom.phase) not in _AFTER_POOL or lower <= 0:
        return
    freed = round((fraction - lower) * base)
    pool = log.lead.kv_bytes or max((rank.kv_bytes or 0 for rank in log.ranks), default=0)
    percent = 100 * freed / (pool or fraction * base)
    kv = f", {percent:.1f} % less KV cache" if pool else ", taken from the KV cache"
    is_short = "were short" if numbers.shows_free else "were tried"
    short_by = f"where {memory_bytes(short)} {is_short}" if short else "where torch's pieces were too small"
    cost = f"frees {memory_bytes(freed)} {short_by}{kv}"
    yield LogRemedy("lower the fraction", f"--mem-fraction-static {lower:g}", cost, percent)


def _raise_fraction(log: ServerLog) -> Iterator[LogRemedy]:
    """Yield a fraction just above what the weights take, unless the server's was higher."""
    base, least = log.lead.baseline_bytes, least_fraction(log)
    if not base or least is None or least < (fraction_of(log) or 0):
        return
    higher = math.floor(100 * least) / 100 + 0.02
    pool, left = memory_bytes(round((higher - least) * base)), memory_bytes(round((1 - higher) * base))
    cost = f"{pool} for the KV cache, {left} left for graphs and activations"
    yield LogRemedy("raise the fraction", f"--mem-fraction-static {higher:.2f}", cost)


def _graphs(log: ServerLog) -> Iterator[LogRemedy]:
    phase = graphs_or(log.oom.phase) if log.oom else ""
    for field in _FEWER.get(phase, ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")):
        if (largest := _number(log, field)) is not None and largest > 1:
            what = "tokens" if phase == "prefill graphs" else "requests"
            cost = f"batches over {largest // 2:,} {what} run without a graph"
            yield LogRemedy("capture fewer graphs", f"{_flag(field)} {largest // 2}", cost, 5)
            break
    for field in _NONE.get(phase, ("cuda_graph_backend_decode", "disable_cuda_graph")):
        if re.search(rf"[(,{{ ]'?{field}'?[=:]", log.server_args or ""):
            flag = f"{_flag(field)}{'=disabled' if 'backend' in field else ''}"
            yield LogRemedy(f"capture no {phase}", flag, f"runs without {phase}: slower", 30)
            break


def _halved(field: str, least: int, cost: str, price: float) -> Callable[[ServerLog], Iterator[LogRemedy]]:
    def remedies(log: ServerLog) -> Iterator[LogRemedy]:
        number = _number(log, field)
        if number is not None and number >= least:
            flag = f"{_flag(field)} {number // 2}"
            yield LogRemedy(f"lower {_flag(field)}", flag, cost, price)

    return remedies


def _more_ranks(log: ServerLog) -> Iterator[LogRemedy]:
    if (tp := _number(log, "tp_size")) is not None:
        cost = f"{2 * tp} ranks instead of {tp}; not checked against the model"
        yield LogRemedy("spread the weights", f"--tp {2 * tp}", cost, 100)


# For each name of a change: how its numbers are found, and its words if the log has none.
_CHANGES: dict[str, tuple[Callable[[ServerLog], Iterator[LogRemedy]] | None, str]] = {
    "segments": (_segments, ""),
    "occupied": (None, "end the other process"),
    "fraction": (_lower_fraction, "lower --mem-fraction-static"),
    "raise": (_raise_fraction, "raise --mem-fraction-static"),
    "larger pool": (None, "raise --mem-fraction-static by that share, or set --max-total-tokens"),
    "graphs": (_graphs, "capture fewer or no graphs (--cuda-graph-max-bs, --disable-cuda-graph)"),
    "chunk": (_halved("chunked_prefill_size", 1024, "long prompts take more steps", 6),
              "lower --chunked-prefill-size"),
    "requests": (_halved("max_running_requests", 2, "fewer requests at once", 50), ""),
    "context": (None, "lower --context-length: the fraction does not count it"),
    "logprobs": (None, "ask for fewer logprobs"),
    "ranks": (_more_ranks, "spread the weights over more ranks (--tp-size, --pp-size)"),
    "checkpoint": (None, "take a smaller or a quantized checkpoint"),
    "symmetric": (None, "lower SGLANG_SYMM_MEM_PREALLOC_GB_SIZE"),
    "deepep": (None, "lower SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"),
}  # fmt: skip


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _number(log: ServerLog, field: str) -> int | None:
    found = re.search(rf"[(,{{ ]'?{field}'?[=:] ?(\d{{1,9}})\b", log.server_args or "")
    return int(found[1]) if found else log.lead.sizes.get(field)
