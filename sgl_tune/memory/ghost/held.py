"""What holds the GPU's memory at the tightest moment of a start: shares that add up to the GPU."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.ghost.outside import Outside
from runtime.record.parts import Phase
from runtime.record.record import Record
from sgl_tune.memory.report import Share

KV, GRAPHS, BUFFERS, WEIGHTS, OTHER = "KV cache", "graphs", "buffers", "other weights", "other of torch"
CACHED, NCCL, OUTSIDE, FREE = "cached by torch", "NCCL", "outside torch", "free"
GRAPHS_OUTSIDE = "graphs outside torch"
_BUFFERS = ("attention backend", "eager", "autotune", "kernel warmup")
_ROOT = "start"
_COUNTED = "communicators_"


def tightest(record: Record) -> Phase | None:
    """The phase that the start died in, else the one that leaves the least; of nested ones the inner one."""
    if record.ending.at is not None:
        return record.ending.at
    inner = [phase for phase in record.phases if phase.name != _ROOT]
    return min(inner, key=lambda of: (_left(of), -of.depth), default=None)


def held_of(record: Record, numbers: Outside) -> tuple[Share, ...]:
    """At the peak of the tightest phase; none of a start without phases."""
    at = tightest(record)
    if at is None:
        return ()
    shares: dict[str, int] = {}
    for what, size in _kept(record, at):
        shares[what] = shares.get(what, 0) + size
    shares[OTHER] = shares.get(OTHER, 0) + at.allocated_before - sum(shares.values())
    shares[f"{at.name} while it runs"] = at.peak - at.allocated_before
    shares[CACHED] = at.reserved_peak - at.peak
    nccl = min(at.outside, _nccl(record, numbers))
    graphs = min(at.outside - nccl, _graphs_outside(record, at))
    shares |= {NCCL: nccl, GRAPHS_OUTSIDE: graphs, OUTSIDE: at.outside - nccl - graphs, FREE: _left(at)}
    return tuple(Share(what, size) for what, size in shares.items() if size)


def _left(phase: Phase) -> int:
    return phase.total - phase.outside - phase.reserved_peak


def _kept(record: Record, at: Phase) -> Iterable[tuple[str, int]]:
    """What each phase before `at` left, beside what the phases within it left."""
    within: dict[int, int] = {}
    for phase in _before(record, at):
        left = phase.allocated - phase.allocated_before
        own = left - within.pop(phase.depth + 1, 0)
        within[phase.depth] = within.get(phase.depth, 0) + left
        if phase.name.endswith("weights"):
            owned = [(one.what, one.bytes) for one in record.held if one.phase == phase.name]
            yield from owned
            yield WEIGHTS, own - sum(size for _, size in owned)
        else:
            yield _kind(phase.name), own


def _before(record: Record, at: Phase) -> list[Phase]:
    """Phases are in the order in which they ended."""
    phases = list(record.phases)
    return phases[: phases.index(at)] if at in phases else phases


def _kind(name: str) -> str:
    if name.endswith("kv pool"):
        return KV
    if name.endswith("graphs"):
        return GRAPHS
    return BUFFERS if name.removeprefix("draft ") in _BUFFERS else OTHER


def _nccl(record: Record, numbers: Outside) -> int:
    """By the table: the first communicator costs more than a later one."""
    groups = {
        int(name.removeprefix(_COUNTED)): count
        for name, count in record.counted.items()
        if name.startswith(_COUNTED) and count
    }
    sizes = [count * numbers.communicator(ranks).bytes for ranks, count in groups.items() if ranks > 1]
    first = numbers.numbers.get("first")
    return sum(sizes) + (first.bytes if sizes and first else 0)


def _graphs_outside(record: Record, at: Phase) -> int:
    """What grew outside torch since the first phase that captures graphs began."""
    before = [phase for phase in _before(record, at) if not phase.name.endswith("graphs")]
    if not at.name.endswith("graphs") or not before:
        return 0
    return max(0, at.outside - before[-1].outside)
