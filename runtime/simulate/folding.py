"""Identical layers and identical forwards are allocated once and then repeated as arithmetic.

A decoder's layers allocate the same sizes in the same order. Once a round of layers takes and frees exactly
the addresses of the round before and leaves the same free blocks, every further round must do so too: what a
round is served depends on the free blocks and on the addresses it inherits alone. Those rounds are skipped.
The same recording, replayed against the allocator, stands for a second warm-up and for a graph's capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from itertools import groupby
from typing import Any, TypeVar

import torch

from runtime.simulate.tracker import Allocation, AllocationTracker, Loop, Recording

Item = TypeVar("Item")
_LONGEST_ROUND = 2  # two layers trade the blocks of their hidden states

_folding: ContextVar[AllocationTracker | None] = ContextVar("folding", default=None)


@contextmanager
def fold_with(tracker: AllocationTracker) -> Iterator[None]:
    """Let `repeat` skip rounds; only where values do not matter, which is on meta tensors."""
    token = _folding.set(tracker)
    try:
        yield
    finally:
        _folding.reset(token)


def repeat(items: Iterable[Item], kind: Callable[[Item], object]) -> Iterator[Item]:
    """Iterate over layers; under `fold_with`, over as few of each run of one kind as tell the rest."""
    tracker = _folding.get()
    if tracker is None:
        yield from items
        return
    for _, run in groupby(items, key=kind):
        yield from _fold(list(run), tracker)


def _fold(run: list[Item], tracker: AllocationTracker) -> Iterator[Item]:
    outer = tracker.recording
    recording = tracker.recording = outer or Recording()
    try:
        marks = [_mark(recording, tracker)]
        done = 0
        while done < len(run):
            yield run[done]
            done += 1
            marks.append(_mark(recording, tracker))
            length = _steady_round(marks, recording)
            rounds = (len(run) - done) // length if length else 0
            if rounds:
                recording.loops.append(Loop(marks[-1 - length].step, marks[-1].step, rounds))
                done += rounds * length
                yield from run[done:]
                return
    finally:
        tracker.recording = outer


@dataclass(frozen=True, slots=True)
class _Mark:
    step: int
    free_blocks: tuple[tuple[int, ...], ...]


def _mark(recording: Recording, tracker: AllocationTracker) -> _Mark:
    return _Mark(len(recording.steps), tracker.allocator.free_blocks())


def _steady_round(marks: list[_Mark], recording: Recording) -> int:
    """How many layers make a round that did exactly what the round before it did; 0: none yet."""
    for length in range(1, _LONGEST_ROUND + 1):
        if len(marks) <= 2 * length:
            break
        before, middle, now = marks[-1 - 2 * length], marks[-1 - length], marks[-1]
        if middle.free_blocks == now.free_blocks:
            first = _addresses(recording.steps[before.step : middle.step])
            second = _addresses(recording.steps[middle.step : now.step])
            if first == second and _inherited(recording.steps, middle.step, now.step) is not None:
                return length
    return 0


def _inherited(
    steps: Sequence[tuple[bool, Allocation]], start: int, end: int
) -> list[tuple[Allocation, Allocation]] | None:
    """What a round frees of its predecessor's making, paired with the same thing of its own making.

    None if it frees anything older.
    """
    own = [allocation for made, allocation in steps[start:end] if made]
    earlier = [allocation for made, allocation in steps[2 * start - end : start] if made]
    mine, counterpart = set(own), dict(zip(earlier, own, strict=True))
    older = [allocation for made, allocation in steps[start:end] if not made and allocation not in mine]
    if not all(allocation in counterpart for allocation in older):
        return None
    return [(allocation, counterpart[allocation]) for allocation in older]


def _addresses(steps: Sequence[tuple[bool, Allocation]]) -> list[tuple[bool, int, int]]:
    return [(made, allocation.block.address, allocation.nbytes) for made, allocation in steps]


def record(run: Callable[[], Any], tracker: AllocationTracker) -> tuple[Any, Recording | None]:
    """Run, and return what happened if it can be replayed: if what it made and left behind is its result."""
    recording = tracker.recording = Recording()
    try:
        result = run()
    finally:
        tracker.recording = None
    made = {allocation for is_made, allocation in recording.steps if is_made}
    freed = {allocation for is_made, allocation in recording.steps if not is_made}
    kept = {tracker.allocation_of(tensor) for tensor in tensors_of(result)}
    return result, recording if freed <= made and made - freed <= kept else None


class Replay:
    """One pass of a recording through the allocator, in whatever pool and stream are current."""

    def __init__(self, recording: Recording, tracker: AllocationTracker) -> None:
        self._recording = recording
        self._tracker = tracker
        self._copies: dict[Allocation, Allocation] = {}

    def makes(self, allocation: Allocation) -> bool:
        return any(made and allocation is step for made, step in self._recording.steps)

    def run(self) -> dict[Allocation, Allocation]:
        """The recorded allocations that outlive the pass, each with its new counterpart."""
        self._copies = {}
        position = 0
        for loop in self._recording.loops:
            self._take(position, loop.start)
            self._run_loop(loop)
            position = loop.end
        self._take(position, len(self._recording.steps))
        return self._copies

    def _take(self, start: int, end: int) -> list[tuple[bool, int]]:
        served = []
        for made, recorded in self._recording.steps[start:end]:
            if made:
                copy = self._copies[recorded] = recorded.copy()
                self._tracker.allocate(copy)
            else:
                copy = self._copies.pop(recorded)
                self._tracker.free(copy)
            served.append((made, copy.block.address))
        return served

    def _run_loop(self, loop: Loop) -> None:
        """Further rounds until two are alike, each inheriting what the one before it left."""
        before = self._take(loop.start, loop.end)
        inherited = _inherited(self._recording.steps, loop.start, loop.end)
        for _ in range(loop.count):
            free_blocks = self._tracker.allocator.free_blocks()
            for older, newer in inherited or ():
                self._copies[older] = self._copies.pop(newer)
            served = self._take(loop.start, loop.end)
            if served == before and free_blocks == self._tracker.allocator.free_blocks():
                return
            before = served


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif is_dataclass(value):
        for item in fields(value):
            yield from tensors_of(getattr(value, item.name))
