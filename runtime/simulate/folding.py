"""Runs identical layers through torch a few times, and identical forwards once.

A decoder's layers allocate the same sizes in the same order. When two layers in a row did the same and freed
as much as they allocated, the rest of their run would change nothing, and is skipped. A recording of a
forward replaces a second warm-up and the capture of a graph.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from runtime.simulate.allocation import Allocation, Step
from runtime.simulate.tensors import tensors_of
from runtime.simulate.tracker import AllocationTracker

Item = TypeVar("Item")

_WIDEST_ROUND = 4


def fold(items: Iterable[Item], kind: Callable[[Item], object], tracker: AllocationTracker) -> Iterator[Item]:
    """Yield the layers that must run: as few of each run of equal rounds as determine the rest."""
    for run in _runs(list(items), kind):
        yield from _fold(run, tracker)


def _runs(items: list[Item], kind: Callable[[Item], object]) -> Iterator[list[list[Item]]]:
    """Yield runs of rounds; a round is one layer, or a few layers whose kinds alternate."""
    kinds = [kind(item) for item in items]
    start = 0
    while start < len(items):
        lengths = {width: _repeated(kinds, start, width) for width in range(1, _WIDEST_ROUND + 1)}
        width = max(lengths, key=lambda width: (lengths[width], -width))
        end = start + lengths[width]
        yield [items[i : i + width] for i in range(start, end, width)]
        start = end


def _repeated(kinds: list[object], start: int, width: int) -> int:
    """Count the items from `start` that form whole rounds of `width`; rounds wider than one must repeat."""
    end = start + width
    while kinds[end : end + width] == kinds[start : start + width]:
        end += width
    return end - start if width == 1 or end - start > width else 0


def _fold(run: list[list[Item]], tracker: AllocationTracker) -> Iterator[Item]:
    outer = tracker.recording
    steps = tracker.recording = [] if outer is None else outer
    try:
        starts = [len(steps)]
        for done, items in enumerate(run, 1):
            kernels = tracker.kernels
            yield from items
            starts.append(len(steps))
            if done < len(run) and _repeats(steps, starts):
                tracker.kernels += (len(run) - done) * (tracker.kernels - kernels)
                return
    finally:
        tracker.recording = outer


def _repeats(steps: Sequence[Step], starts: Sequence[int]) -> bool:
    """Whether the last two layers changed memory in the same way."""
    if len(starts) < 4:
        return False
    first, second, third, end = starts[-4:]
    form = _form(steps[second:third], steps[first:second])
    return form is not None and form == _form(steps[third:end], steps[second:third])


def _form(steps: Sequence[Step], earlier: Sequence[Step]) -> list[tuple[bool, int]] | None:
    """Return the sizes made, and each free as its place among those or, negative, among those of `earlier`.
    Returns None if an older allocation is freed, or one is kept for good."""
    places = {a: ~n for n, a in enumerate(a for made, a in earlier if made)}
    own = 0
    form: list[tuple[bool, int]] = []
    for made, allocation in steps:
        if made:
            places[allocation], own = own, own + 1
            form.append((True, allocation.nbytes))
        elif allocation in places:
            form.append((False, places[allocation]))
        else:
            return None
    return form if 2 * own == len(form) else None


def record(run: Callable[[], Any], tracker: AllocationTracker) -> tuple[Any, list[Step] | None]:
    """Run, and return the result and its steps, or None if it keeps allocations besides its result."""
    steps = tracker.recording = list[Step]()
    try:
        result = run()
    finally:
        tracker.recording = None
    made = {allocation for is_made, allocation in steps if is_made}
    freed = {allocation for is_made, allocation in steps if not is_made}
    kept = {tracker.allocation_of(tensor) for tensor in tensors_of(result)}
    return result, steps if freed <= made and made - freed <= kept else None


def replay(steps: Sequence[Step], tracker: AllocationTracker) -> dict[Allocation, Allocation]:
    """Allocate and free everything again, in the current pool and stream. Return the recorded allocations
    that remain, each with its new counterpart."""
    copies: dict[Allocation, Allocation] = {}
    for made, recorded in steps:
        if made:
            copies[recorded] = recorded.copy()
            tracker.allocate(copies[recorded])
        else:
            tracker.free(copies.pop(recorded))
    return copies
