"""What a call took of torch's allocator and of the graph that is captured, taken again without the call.

torch's own history of its memory says each allocation and each release. The same ones, made once more in the
same order, leave the allocator as the call would have left it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch

from runtime.folding.inside import running
from runtime.ghost.inside import small, stream
from runtime.ghost.inside.library import library

NO_POOL = (1 << 40, 1 << 40, True)  # of no graph: a snapshot of it holds the history, and no blocks
ENTRIES = 1 << 16
GRAPH, COUNTED = ctypes.c_uint64 * 4, ctypes.c_uint64 * 16
ONCE = (1, 7, *range(8, 16))  # of what is counted outside torch: code, modules, communicators


class Held(NamedTuple):
    """An attribute of an argument, by the argument's place, that holds a tensor."""

    at: int
    name: str


class Take(NamedTuple):
    """`steps`: the bytes and the stream of an allocation, the place of one that is released, or an attribute
    whose tensor is released for another; `grown`: nodes, messages and branches of the captured graph."""

    steps: tuple[Any, ...]
    grown: tuple[int, ...]


class Taken(NamedTuple):
    """Of more than one take every other one is eager, between two graphs. `counts`: by their ids."""

    takes: tuple[Take, ...]
    stays: frozenset[int]  # the places that were not released
    counts: tuple[int, ...]


class Recorder:
    """Records one call. `cut` comes before a captured graph ends or begins, `resume` after it."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.counts: list[list[int]] = []  # counts that the call raised
        self._held = {address(tensor): held for held, tensor in attributes(given)}
        self.places: dict[int, int] = {}  # of what is allocated, by its address
        self._good, self._takes, self._all, self._late = True, list[Take](), 0, set[int]()
        self._said, self._outside = stream.said(), _asked("ghost_counted", COUNTED)
        self.resume()

    def resume(self) -> None:
        _listen("all")
        self._graph = _asked("ghost_captured", GRAPH)

    def cut(self) -> None:
        steps, now = tuple(self._steps()), _asked("ghost_captured", GRAPH)
        _listen(None)
        self._good &= now[0] == self._graph[0]
        grown = (new - old for new, old in zip(now[1:], self._graph[1:], strict=True))
        self._takes.append(Take(steps, tuple(grown)))

    def end(self) -> Taken | None:
        """None where more happened than what can be taken again."""
        self.cut()
        now, once = _asked("ghost_counted", COUNTED), range(16) if len(self._takes) == 1 else ONCE
        is_new = stream.said() != self._said or any(now[one] != self._outside[one] for one in once)
        if is_new or self._late or not self._good or len(self._takes) % 2 == 0:
            return None
        return Taken(tuple(self._takes), frozenset(self.places.values()), tuple(map(id, self.counts)))

    def _steps(self) -> Iterator[Any]:
        for event in _history():
            action, at = event["action"], event.get("addr", 0)
            if action == "alloc":
                self.places[at] = self._all
                self._all += 1
                yield event["size"], event["stream"]
            elif action == "free_requested":
                self._late.add(at)  # until it is completed: another stream may still use it
                place = self.places.pop(at) if at in self.places else self._held.pop(at, None)
                self._good &= place is not None
                yield place
            elif action == "free_completed":
                self._late.discard(at)
            elif action == "oom":
                self._good = False


class Again:
    """Takes once more what was taken. `made`: the memory that stays, by place; `swap` sets an attribute."""

    def __init__(self, taken: Taken, swap: Callable[[Held, dict[int, Any]], None]) -> None:
        self._takes, self._stays, self._swap = taken.takes, taken.stays, swap
        self.made: dict[int, Any] = {}
        self._pointers: dict[int, int] = {}
        self._all = 0

    def run(self) -> None:
        self._run(self._takes[0])
        for eager, captured in zip(self._takes[1::2], self._takes[2::2], strict=True):
            assert running.break_by is not None
            running.break_by(self._run, eager)
            self._run(captured)

    def undo(self) -> None:
        """Give back what was allocated before memory ran out."""
        for at in self._pointers.values():
            torch._C._cuda_cudaCachingAllocator_raw_delete(at)
        self.forget()

    def forget(self) -> None:
        """Keep no tensor: the breaks of a graph keep what they ran."""
        self.made, self._swap = {}, lambda held, memory: None

    def _run(self, take: Take) -> None:
        for step in take.steps:
            if type(step) is int:
                torch._C._cuda_cudaCachingAllocator_raw_delete(self._pointers.pop(step))
                continue
            if type(step) is Held:
                self._swap(step, self.made)
                continue
            if self._all in self._stays:
                made = self.made[self._all] = torch.empty(step[0], dtype=torch.uint8, device="cuda")
                at = made.data_ptr()
            else:
                at = self._pointers[self._all] = torch._C._cuda_cudaCachingAllocator_raw_alloc(*step)
            if small.runs():
                library().mark(at, step[0], 0)
            self._all += 1
        if any(take.grown):
            library().runtime("ghost_grow")(*map(ctypes.c_uint64, take.grown))


def attributes(given: Sequence[Any]) -> Iterator[tuple[Held, Any]]:
    """Yield the tensors on the device that arguments hold as attributes."""
    for at, one in enumerate(given):
        if hasattr(one, "__dict__") and not isinstance(one, torch.Tensor):
            for name, value in vars(one).items():
                if isinstance(value, torch.Tensor) and value.is_cuda:
                    yield Held(at, name), value


def address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _listen(what: Literal["all"] | None) -> None:
    torch.cuda.memory._record_memory_history(what, context=None, stacks="python", max_entries=ENTRIES)


def _history() -> list[dict[str, Any]]:
    for one in NO_POOL:  # torch 2.11 gives back a reference to each that it never took
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    told = torch._C._cuda_memorySnapshot(NO_POOL)
    return list(told["device_traces"][torch.cuda.current_device()])


def _asked(name: str, kind: Any) -> list[int]:
    found = kind()
    library().runtime(name)(found)
    return list(found)
