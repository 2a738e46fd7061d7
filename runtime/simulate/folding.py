"""Runs identical layers and forwards through torch once, and after that only through the allocator.

A decoder's layers allocate the same sizes in the same order. When two layers in a row did the same, the rest
of their run is repeated as rounds of allocations and frees. When a round starts with the free blocks and
inherited addresses of an earlier one, the rounds form a cycle, and whole cycles are skipped. Nothing is
approximated: the allocator's answers depend only on its free blocks and on what is freed. A recording of a
forward, rounds included, also replaces a second warm-up and the capture of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from runtime.simulate.allocation import Allocation, Loop, Recording
from runtime.simulate.tensors import tensors_of
from runtime.simulate.tracker import AllocationTracker

Item = TypeVar("Item")
Step = tuple[bool, Allocation]

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
    recording = tracker.recording = outer or Recording()
    try:
        starts = [len(recording.steps)]
        for done, items in enumerate(run, 1):
            kernels = tracker.kernels
            yield from items
            starts.append(len(recording.steps))
            if done < len(run) and _repeats(recording.steps, starts):
                loop = Loop(starts[-2], starts[-1], len(run) - done)
                tracker.kernels += loop.count * (tracker.kernels - kernels)
                _run_on(recording, loop, tracker)
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

    Returns None if an older allocation is freed, or one is kept for good: such rounds never form a cycle.
    """
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


def _run_on(recording: Recording, loop: Loop, tracker: AllocationTracker) -> None:
    """Run the rounds of a loop now, without moving the tensors that the last real layer left."""
    tracker.recording = None
    left = [a for made, a in recording.steps[loop.start : loop.end] if made and tracker.holds(a)]
    stand_ins = {a: a.copy() for a in left}
    for allocation, stand_in in stand_ins.items():
        tracker.hand_over(allocation, stand_in)
    _Rounds(recording.steps, loop, tracker, stand_ins).run()
    for allocation in left:
        tracker.hand_over(stand_ins[allocation], allocation)
    recording.loops.append(loop)
    tracker.recording = recording


class _Rounds:
    """Runs rounds. `copies` maps recorded allocations to those that replace them now."""

    def __init__(
        self,
        steps: Sequence[Step],
        loop: Loop,
        tracker: AllocationTracker,
        copies: dict[Allocation, Allocation],
    ) -> None:
        self._loop, self._tracker, self._copies = loop, tracker, copies
        self._steps = steps[loop.start : loop.end]
        own = [a for made, a in self._steps if made]
        earlier = [a for made, a in steps[2 * loop.start - loop.end : loop.start] if made]
        counterpart = dict(zip(earlier, own, strict=True))
        mine = set(own)
        # Allocations of the previous round that a round frees, with the same allocation of its own.
        self._inherited = [(a, counterpart[a]) for made, a in self._steps if not made and a not in mine]

    def run(self) -> None:
        seen: dict[object, int] = {}
        left = self._loop.count
        while left:
            state = self._state()
            if state in seen:
                left %= seen[state] - left
                seen = {}
                if not left:
                    return
            seen[state] = left
            self._run_one()
            left -= 1

    def _state(self) -> object:
        addresses = tuple(self._copies[own].block.address for _, own in self._inherited)
        return self._tracker.allocator.free_blocks(), addresses

    def _run_one(self) -> None:
        for older, own in self._inherited:
            self._copies[older] = self._copies.pop(own)
        take(self._steps, self._copies, self._tracker)


def take(steps: Sequence[Step], copies: dict[Allocation, Allocation], tracker: AllocationTracker) -> None:
    for made, recorded in steps:
        if made:
            copies[recorded] = recorded.copy()
            tracker.allocate(copies[recorded])
        else:
            tracker.free(copies.pop(recorded))


def record(run: Callable[[], Any], tracker: AllocationTracker) -> tuple[Any, Recording | None]:
    """Run, and return the result and a recording, or None if it keeps allocations besides its result."""
    recording = tracker.recording = Recording()
    try:
        result = run()
    finally:
        tracker.recording = None
    made = {allocation for is_made, allocation in recording.steps if is_made}
    freed = {allocation for is_made, allocation in recording.steps if not is_made}
    kept = {tracker.allocation_of(tensor) for tensor in tensors_of(result)}
    return result, recording if freed <= made and made - freed <= kept else None


def replay(recording: Recording, tracker: AllocationTracker) -> dict[Allocation, Allocation]:
    """Allocate and free everything again, in the current pool and stream.

    Returns the recorded allocations that remain, each with its new counterpart.
    """
    copies: dict[Allocation, Allocation] = {}
    position = 0
    for loop in recording.loops:
        take(recording.steps[position : loop.end], copies, tracker)
        _Rounds(recording.steps, loop, tracker, copies).run()
        position = loop.end
    take(recording.steps[position:], copies, tracker)
    return copies
