"""The phases of a start in order, and the shares of the GPU's memory at the peak of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runtime.start.run_record import Phase, Run

KV, GRAPHS, BUFFERS, WEIGHTS, OTHER = "KV cache", "graphs", "buffers", "other weights", "other of torch"
EMBEDDINGS, TEMPORARY, CACHED = "embeddings", "temporary", "cached by torch"
OTHERS, NCCL, GRAPHS_OUTSIDE, OUTSIDE, FREE = (
    "other processes", "NCCL", "graphs outside torch", "outside torch", "free",
)  # fmt: skip
# The order in which a page stacks them, the lowest first.
ORDER = (OTHERS, OUTSIDE, NCCL, GRAPHS_OUTSIDE, WEIGHTS, "experts", "attention", "mlp", EMBEDDINGS, KV,
         BUFFERS, GRAPHS, OTHER, TEMPORARY, CACHED, FREE)  # fmt: skip
_BUFFERS = ("attention backend", "eager buffers", "autotune", "kernel warmup", "moe dispatcher")


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of the GPU that one thing holds."""

    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Owned:
    """Known owners of memory. `weights`: the bytes of each kind of module, by the phase that loads them.
    `outside`: known memory outside torch."""

    weights: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    outside: tuple[Share, ...] = ()


def parts_of(
    phases: Sequence[Phase], failed: Phase | None, owned: Owned, total: int
) -> tuple[tuple[Share, ...], ...]:
    """Return, for each phase, what holds the GPU at its peak. `phases`: in the order they began."""
    kept, around, found = _Kept(owned), list[Phase](), []
    for place, phase in enumerate(phases):
        while around and around[-1].depth >= phase.depth:
            ended = around.pop()
            kept.now(ended.allocated_bytes, ended.name)
        kept.now(phase.allocated_bytes - phase.persistent_bytes, around[-1].name if around else "")
        around.append(phase)
        cached, outside = beyond_peak(phase, total)
        shares = {**kept.at_peak(phase, phase is failed), CACHED: cached}
        shares |= _outside(phase, outside, phases[:place], owned)
        shares[FREE] = max(0, total - sum(shares.values()))
        in_order = sorted(shares.items(), key=lambda one: ORDER.index(one[0] if one[0] in ORDER else OTHER))
        found.append(tuple(Share(what, size) for what, size in in_order if size))
    return tuple(found)


def _outside(phase: Phase, left: int, before: Sequence[Phase], owned: Owned) -> dict[str, int]:
    """Divide the memory outside torch into known shares and the rest."""
    shares = {}
    for share in (*owned.outside, Share(GRAPHS_OUTSIDE, _graphs_outside(phase, before))):
        shares[share.what] = min(left, share.bytes)
        left -= shares[share.what]
    return {**shares, OUTSIDE: left}


def _graphs_outside(phase: Phase, before: Sequence[Phase]) -> int:
    """Return the growth of memory outside torch since the first phase that captures graphs began."""
    others = [one for one in before if not one.name.endswith("graphs")]
    has_begun = phase.name.endswith("graphs") or any(one.name.endswith("graphs") for one in before)
    return max(0, phase.non_torch_bytes - others[-1].non_torch_bytes) if has_begun and others else 0


class _Kept:
    """Allocated memory by the phase that allocated it. Freed memory is taken from the newest allocation."""

    def __init__(self, owned: Owned) -> None:
        self._stack: list[tuple[str, int]] = []
        self._now = 0
        self._weights = owned.weights

    def now(self, allocated: int, phase: str) -> None:
        more, self._now = allocated - self._now, allocated
        if more > 0:
            self._stack += self._parts(phase, more)
        while more < 0 and self._stack:
            what, size = self._stack.pop()
            if size + more > 0:
                self._stack.append((what, size + more))
            more = min(0, size + more)

    def at_peak(self, phase: Phase, has_failed: bool) -> dict[str, int]:
        """Return the parts at the phase's peak, with what the phase adds: lasting and temporary memory."""
        own = phase.peak_bytes - self._now
        stays = max(0, min(own, own if has_failed else phase.persistent_bytes))
        if has_failed and not phase.name.endswith(("weights", "kv pool")):
            stays = 0
        found: dict[str, int] = {}
        for what, size in (*self._stack, *self._parts(phase.name, stays), (TEMPORARY, own - stays)):
            found[what] = found.get(what, 0) + size
        return found

    def _parts(self, phase: str, size: int) -> Iterator[tuple[str, int]]:
        """Yield weights by module kind, embeddings last, because a draft model frees its own embeddings."""
        if not phase.endswith("weights"):
            yield _kind(phase), size
            return
        weights = self._weights.get(phase, {})
        owned = sorted(weights.items(), key=lambda one: one[0] == EMBEDDINGS)
        yield WEIGHTS, max(0, size - sum(weights.values()))
        for what, bytes in owned:
            part = min(bytes, size)
            size -= part
            yield what, part


def _kind(name: str) -> str:
    if name.endswith("kv pool"):
        return KV
    if name.endswith("graphs"):
        return GRAPHS
    return BUFFERS if name.removeprefix("draft ") in _BUFFERS else OTHER


def rooted(run: Run) -> Run:
    """Return the run with new depths: a phase whose outer phase did not end counts as outermost."""
    ended = [*run.phases, *([run.failure.at_failure] if run.failure else [])]
    found = []
    for place, phase in enumerate(ended):
        least, depth = phase.depth, 0
        for later in ended[place + 1 :]:
            least, depth = (later.depth, depth + 1) if later.depth < least else (least, depth)
        found.append(replace(phase, depth=depth))
    failure = replace(run.failure, at_failure=found.pop()) if run.failure else None
    return replace(run, phases=tuple(found), failure=failure)


def beyond_peak(phase: Phase, total: int) -> tuple[int, int]:
    """Return two sizes at the peak: bytes that torch held without using them, and bytes outside torch. The
    second was read at the end of the phase, and the peak may be earlier."""
    held = total - phase.free_at_peak_bytes - phase.peak_bytes
    outside = min(phase.non_torch_bytes, held)
    return held - outside, outside


def peaking(phases: Sequence[Phase]) -> list[Phase]:
    """Return the phases in the order they began, without those whose peak is that of an inner phase."""
    return [
        phase
        for place, phase in enumerate(phases)
        if not any(inner.reserved_peak_bytes >= phase.reserved_peak_bytes for inner in _within(phases, place))
    ]


def _within(phases: Sequence[Phase], place: int) -> Iterator[Phase]:
    for phase in phases[place + 1 :]:
        if phase.depth <= phases[place].depth:
            return
        yield phase


def in_begin_order(ended: Iterable[Phase]) -> list[Phase]:
    """Sort phases, given in the order they ended, by their begin. An inner phase ends before its outer
    one."""
    done: list[list[Phase]] = []
    for phase in ended:
        inner: list[Phase] = []
        while done and done[-1][0].depth > phase.depth:
            inner = done.pop() + inner
        done.append([phase, *inner])
    return [phase for group in done for phase in group]
