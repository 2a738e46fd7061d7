"""What holds the GPU's memory at the tightest moment of a start: shares that add up to the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from runtime.ghost.outside import Outside
from runtime.record.parts import Phase
from runtime.record.record import Record
from sgl_tune.memory.report import Share

KV, GRAPHS, BUFFERS, WEIGHTS, OTHER = "KV cache", "graphs", "buffers", "other weights", "other of torch"
EMBEDDINGS = "embeddings"
CACHED, NCCL, OUTSIDE, FREE = "cached by torch", "NCCL", "outside torch", "free"
GRAPHS_OUTSIDE, OTHERS = "graphs outside torch", "other processes"
_BUFFERS = ("attention backend", "eager", "autotune", "kernel warmup")
_ROOT = "start"
_COUNTED = "communicators_"


def tightest(record: Record) -> Phase | None:
    """The phase that the start died in, else the one that leaves the least; of nested ones the inner one."""
    if record.ending.at is not None:
        return record.ending.at
    inner = [node.phase for node in _all(_nested(record.phases)) if not node.peaks_within]
    return min(inner, key=lambda of: (_left(of), -of.depth), default=None)


def held_of(record: Record, numbers: Outside, taken: int = 0) -> tuple[Share, ...]:
    """At the peak of the tightest phase; none of a start without phases. `taken`: by other processes."""
    at = tightest(record)
    if at is None:
        return ()
    kept = _Kept(record)
    for around, allocated, begun in _readings(_nested(record.phases), _ROOT):
        kept.now(allocated, around)
        if begun is at:
            break
    kept.now(at.allocated_before, _ROOT)
    shares = kept.shares()
    shares[f"{at.name} while it runs"] = at.peak - at.allocated_before
    shares[CACHED] = at.reserved_peak - at.peak
    left = at.outside
    for what, size in (
        (OTHERS, taken),
        (NCCL, _nccl(record, numbers)),
        (GRAPHS_OUTSIDE, _graphs_outside(record, at)),
    ):
        shares[what] = min(left, size)
        left -= shares[what]
    shares |= {OUTSIDE: left, FREE: _left(at)}
    return tuple(Share(what, size) for what, size in shares.items() if size)


def _left(phase: Phase) -> int:
    return phase.total - phase.outside - phase.reserved_peak


@dataclass(frozen=True)
class _Node:
    """A phase, and those within it in the order in which they began."""

    phase: Phase
    within: tuple[_Node, ...]

    @property
    def peaks_within(self) -> bool:
        """Whether a phase within had as much; what lies outside torch was read later, and may have grown."""
        return any(node.phase.reserved_peak >= self.phase.reserved_peak for node in self.within)


def _nested(phases: Sequence[Phase]) -> tuple[_Node, ...]:
    """Phases are in the order in which they ended."""
    done: list[_Node] = []
    for phase in phases:
        first = len(done)
        while first and done[first - 1].phase.depth > phase.depth:
            first -= 1
        done[first:] = [_Node(phase, tuple(done[first:]))]
    return tuple(done)


def _all(nodes: Iterable[_Node]) -> Iterator[_Node]:
    for node in nodes:
        yield node
        yield from _all(node.within)


def _readings(nodes: Iterable[_Node], around: str) -> Iterator[tuple[str, int, Phase | None]]:
    """What torch had allocated as each phase began or ended, and the innermost phase that led there."""
    for node in nodes:
        yield around, node.phase.allocated_before, node.phase
        yield from _readings(node.within, node.phase.name)
        yield node.phase.name, node.phase.allocated, None


class _Kept:
    """What is allocated, by who allocated it. What is given back is taken from the last who did."""

    def __init__(self, record: Record) -> None:
        self._stack: list[tuple[str, int]] = []
        self._now = 0
        self._owned: dict[str, list[tuple[str, int]]] = {}
        for one in record.held:
            self._owned.setdefault(one.phase, []).append((one.what, one.bytes))

    def now(self, allocated: int, phase: str) -> None:
        more, self._now = allocated - self._now, allocated
        if more > 0:
            self._stack += self._parts(phase, more)
        while more < 0:
            what, size = self._stack.pop()
            if size + more > 0:
                self._stack.append((what, size + more))
            more = min(0, size + more)

    def _parts(self, phase: str, size: int) -> Iterator[tuple[str, int]]:
        """Of weights by the modules that own them, embeddings last: a draft gives its own back."""
        if not phase.endswith("weights"):
            yield _kind(phase), size
            return
        owned = sorted(self._owned.pop(phase, []), key=lambda one: one[0] == EMBEDDINGS)
        yield WEIGHTS, max(0, size - sum(bytes for _, bytes in owned))
        for what, bytes in owned:
            part = min(bytes, size)
            size -= part
            yield what, part

    def shares(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for what, size in self._stack:
            found[what] = found.get(what, 0) + size
        return found


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
    phases = list(record.phases)
    ended = phases[: phases.index(at)] if at in phases else phases
    before = [phase for phase in ended if not phase.name.endswith("graphs")]
    if not at.name.endswith("graphs") or not before:
        return 0
    return max(0, at.outside - before[-1].outside)
