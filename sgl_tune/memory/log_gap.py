"""Where a server's log and its prediction part: what each step took more or less than was told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.simulate.constants import KEPT_OF_GRAPHS
from sgl_tune.errors import UsageError
from sgl_tune.memory.calibration import Calibration
from sgl_tune.memory.report import Constant, MemoryReport
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.units import memory_bytes

OUTSIDE, POOL = "outside torch after the communicator", "pool"
_CAUSES = {
    "weights": "weights",
    "draft weights": "weights",
    "kv pool": POOL,
    "prefill graphs": "graphs",
    "decode graphs": "graphs",
    "draft graphs": "graphs",
}
_GRAPHS = ("prefill graphs", "decode graphs", "draft graphs")
_LARGEST_NODE = 1 << 17
_MOST_OUTSIDE = 1 << 35


@dataclass(frozen=True, slots=True)
class Gap:
    """By cause, how many bytes more the server took than predicted. Its pool takes what others leave."""

    causes: dict[str, int]
    margin_bytes: int

    @property
    def bytes(self) -> int:
        """Of all but the pool."""
        return sum(self._others())

    def line(self) -> str:
        is_inside = all(abs(amount) <= self.margin_bytes for amount in (self.bytes, *self._others()))
        where = "inside" if is_inside else "beyond"
        told = ", ".join(
            f"{cause} {'+' if amount > 0 else ''}{memory_bytes(amount)}"
            for cause, amount in sorted(self.causes.items(), key=lambda of: (of[0] == POOL, -abs(of[1])))
        )
        amount = f"{memory_bytes(abs(self.bytes))} {'more' if self.bytes > 0 else 'less'}"
        bar = f"{where} the error bar of {memory_bytes(self.margin_bytes)}"
        return f"beside its pool the server took {amount} than predicted, {bar}: {told}"

    def _others(self) -> tuple[int, ...]:
        return tuple(amount for cause, amount in self.causes.items() if cause != POOL)


def gap(predicted: MemoryReport, log: RankLog) -> Gap | None:
    """None where the log tells no free memory at all, or where steps came in another order."""
    points = list(_points(predicted, log))
    if not points or log.pool_comes_last:
        return None
    causes: dict[str, int] = {}
    before = 0
    for cause, less in points:
        causes[cause] = causes.get(cause, 0) + less - before
        before = less
    return Gap(causes, predicted.margin_bytes)


def _points(predicted: MemoryReport, log: RankLog) -> Iterator[tuple[str, int]]:
    """The cause of what came in since the point before, and how much less free the log has."""
    free = _free_after(predicted, "communicator")
    if free is not None and log.baseline_bytes is not None:
        yield OUTSIDE, free - log.baseline_bytes
    for step in log.steps:
        free = _free_after(predicted, step.phase)
        if step.phase != "communicator" and free is not None and step.free_bytes is not None:
            yield _CAUSES.get(step.phase, "the rest"), free - step.free_bytes


def _free_after(predicted: MemoryReport, name: str) -> int | None:
    phase = predicted.phase(name)
    failed = predicted.failure.at_failure if predicted.failure else None
    if phase is None or phase is failed:
        return None
    return predicted.free_after(phase)


def constants_of(predicted: MemoryReport, log: RankLog) -> Calibration:
    """What one GPU cannot measure, as this server's log tells it: for --constants of the next prediction."""
    if predicted.is_gpu_assumed:
        raise UsageError("constants follow from the GPU's memory, and the GPU was assumed", "name it: --gpu")
    if log.baseline_bytes is None:
        raise UsageError(
            "the log does not say what was free before the weights", "it is in 'Load weight begin'"
        )
    source = f"a server's log of {log.rank or 'one rank'}: "
    outside = predicted.total_bytes - log.baseline_bytes
    if not 0 < outside < _MOST_OUTSIDE:
        raise UsageError(
            f"a {predicted.gpu} of {memory_bytes(predicted.total_bytes)} cannot have had "
            f"{memory_bytes(log.baseline_bytes)} free before the weights",
            "name the server's GPU: --gpu or --gpu-memory",
        )
    found = [*_channels(predicted, outside, source), *_nodes(predicted, log, source)]
    return Calibration(predicted.gpu, tuple(found))


_BEFORE_WEIGHTS = ("context", "torch kernels", "nccl", "custom all-reduce")


def _channels(predicted: MemoryReport, outside: int, source: str) -> Iterator[Constant]:
    """Of several communicators each takes its share; of a rank alone it is all the context's."""
    known = [of for of in predicted.constants if of.name.startswith("nccl:")]
    others = {of.name: of.bytes for of in predicted.constants if of.name in _BEFORE_WEIGHTS}
    communicator = predicted.phase("communicator")
    how = source + "total - free before the weights"
    if not known or communicator is None:
        yield Constant("context", outside, how)
        return
    outside -= communicator.reserved_bytes
    told, left = (total - sum(others.values()) for total in (communicator.non_torch_bytes, outside))
    if left <= 0:
        yield from (Constant(name, 0, how) for name in others if name not in ("context", "custom all-reduce"))
        yield Constant("context", max(0, outside - others.get("custom all-reduce", 0)), how)
    for of in known:
        share = of.bytes // of.times * max(0, left) // told
        yield Constant(of.name, share, f"{how} - the context and what else was there")


def _nodes(predicted: MemoryReport, log: RankLog, source: str) -> Iterator[Constant]:
    """What captures took beyond what torch reserved for them."""
    nodes = next((of.times for of in predicted.constants if of.name == "graph node"), 0)
    logged = {step.phase: step.used_bytes for step in log.steps if step.phase in _GRAPHS}
    phases = [phase for phase in predicted.phases if phase.name in _GRAPHS]
    if not nodes or predicted.verdict != "fits" or {phase.name for phase in phases} != set(logged):
        return
    used = [bytes for bytes in logged.values() if bytes is not None]
    order = list(predicted.phases)
    grown = sum(of.reserved_bytes - order[order.index(of) - 1].reserved_bytes for of in phases)
    grown += sum(of.bytes for of in predicted.constants if of.name in KEPT_OF_GRAPHS)
    each = (sum(used) - grown) // nodes
    if len(used) == len(phases) and 0 < each < _LARGEST_NODE:
        yield Constant("graph node", each, f"{source}what captures took beyond torch, over {nodes:,} kernels")
