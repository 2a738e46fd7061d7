"""What a call took of torch's allocator and of the graph that is captured, taken again without the call.

torch's own history of its memory says each allocation and each release. The same ones, in the same order,
leave the allocator as the call would have left it.
"""

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import torch
from torch import _C

from runtime.folding.inside import running
from runtime.folding.inside.state import Path, put, state
from runtime.ghost.inside import small, stream
from runtime.ghost.inside.library import library

NO_POOL = (1 << 40, 1 << 40, True)  # of no graph: a snapshot of it holds the history, and no blocks
GRAPH, COUNTED = ctypes.c_uint64 * 16, ctypes.c_uint64 * 16
ONCE = (1, 7, *range(8, 16))  # of what is counted outside torch: code, modules, communicators


class New(NamedTuple):  # a tensor in memory that a call took
    place: int
    offset: int
    form: tuple[Any, ...]


class Given(NamedTuple):  # an argument, or a view of it
    at: int
    view: tuple[Any, ...]


class Swap(tuple[Path, ...]):  # the attributes that held a tensor that is released
    pass


class Take(NamedTuple):
    steps: tuple[Any, ...]  # bytes and stream of an allocation, the place of a release, or a `Swap`
    grown: tuple[int, ...]  # nodes, messages and branches of the captured graph, and the streams in it


class Taken(NamedTuple):
    takes: tuple[Take, ...]  # every other one is eager, between two graphs
    stays: frozenset[int]  # the places that were not released
    counts: tuple[int, ...]  # their ids

    def most(self) -> int:
        """Return what torch may ask of the driver for it: a small allocation can take a segment of 20 MiB."""
        sizes = (step[0] for take in self.takes for step in take.steps if type(step) is tuple)
        return sum(20 << 20 if 1 << 20 < size < 10 << 20 else size + (2 << 20) for size in sizes)


class Recorder:
    """Records one call. `cut` comes before a captured graph ends or begins, `resume` after it."""

    def __init__(self, given: Sequence[Any]) -> None:
        self.counts: list[list[int]] = []  # counts that the call raised
        self.before = state(given)
        self._held: dict[int, Swap] = {}
        for path, (at, *_) in self.before.tensors.items():
            self._held[at] = Swap((*self._held.get(at, ()), path))
        self.places: dict[int, int] = {}  # of what is allocated, by its address
        self._good, self._takes, self._all, self._late = True, list[Take](), 0, set[int]()
        self._said, self._outside = stream.said(), asked("ghost_counted", COUNTED)
        self._steps = list[Any]()
        if running.recorders:  # a layer, of which this is a part
            self.note()
        self.resume()

    def resume(self) -> None:
        _listen("all")
        self._graph = asked("ghost_captured", GRAPH)

    def cut(self) -> None:
        steps, now = tuple(self._steps), asked("ghost_captured", GRAPH)
        self._steps.clear()
        self._good &= now[0] == self._graph[0] and not now[-1]  # with room for each stream
        grown = (new - old for new, old in zip(now[1:4], self._graph[1:4], strict=True))
        self._takes.append(Take(steps, (*grown, *now[4:])))

    def end(self) -> Taken | None:
        """None where more happened than what can be taken again."""
        self.note(len(running.recorders) > 1)
        self.cut()
        now, once = asked("ghost_counted", COUNTED), range(16) if len(self._takes) == 1 else ONCE
        is_new = stream.said() != self._said or any(now[one] != self._outside[one] for one in once)
        if is_new or self._late or not self._good or len(self._takes) % 2 == 0:
            return None
        return Taken(tuple(self._takes), frozenset(self.places.values()), tuple(map(id, self.counts)))

    @staticmethod
    def note(more: bool = True) -> None:
        """Hand what torch noted to each call that is recorded now."""
        events = _history()
        _listen(None)  # forgets them
        if more:
            _listen("all")
        for one in running.recorders:
            one.hear(events)

    def hear(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            action, at = event["action"], event.get("addr", 0)
            if action == "alloc":
                self.places[at] = self._all
                self._all += 1
                self._steps.append((event["size"], event["stream"]))
            elif action == "free_requested":
                self._late.add(at)  # until it is completed: another stream may still use it
                place = self.places.pop(at) if at in self.places else self._held.pop(at, None)
                self._good &= place is not None
                self._steps.append(place)
            elif action == "free_completed":
                self._late.discard(at)
            elif action == "oom":
                self._good = False


class Again:
    """Takes once more what was taken, and puts new tensors where `given`, the arguments, hold others."""

    def __init__(self, taken: Taken, held: Mapping[Path, New], given: Sequence[Any]) -> None:
        self._takes, self._stays, self._held, self._given = taken.takes, taken.stays, held, given
        self._memory: dict[int, Any] = {}  # by place: an address, or what stays
        self._tensors: dict[New, Any] = {}
        self._all = 0

    def run(self) -> None:
        self._run(self._takes[0])
        for eager, captured in zip(self._takes[1::2], self._takes[2::2], strict=True):
            running.break_by(self._run, eager)
            self._run(captured)
        self._swap(self._held)

    def result(self, told: Any) -> Any:
        """Return what a template stands for, the same each time; None for memory that is not taken yet."""
        if isinstance(told, Given):
            one = self._given[told.at]
            return one.as_strided(*told.view) if told.view else one
        if isinstance(told, New) and told not in self._tensors and told.place in self._memory:
            (dtype, device, shape, stride), storage = told.form, self._memory[told.place].untyped_storage()
            made = torch.empty(0, dtype=dtype, device=device).set_(storage, told.offset, shape, stride)
            self._tensors[told] = made
        return self._tensors.get(told) if isinstance(told, New) else told

    def forget(self) -> None:
        """Keep no tensor: the breaks of a graph keep what they ran."""
        self._memory, self._tensors, self._given = {}, {}, ()

    def _swap(self, paths: Iterable[Path]) -> None:
        for path in paths:
            put(self._given, path, self.result(self._held[path]))

    def _run(self, take: Take) -> None:
        memory, stays, place, runs = self._memory, self._stays, self._all, small.runs()
        allocate, release = _C._cuda_cudaCachingAllocator_raw_alloc, _C._cuda_cudaCachingAllocator_raw_delete
        written = dict[int, int]()  # the largest that was taken at an address
        for step in take.steps:
            kind = type(step)
            if kind is int:
                release(memory.pop(step))
            elif kind is Swap:
                self._swap(step)
            else:
                if place in stays:
                    with _on(step[1]):
                        made = memory[place] = torch.empty(step[0], dtype=torch.uint8, device="cuda")
                    at = made.data_ptr()
                else:
                    at = memory[place] = allocate(*step)
                place += 1
                if runs and written.get(at, 0) < step[0]:
                    written[at] = step[0]
        self._all = place
        for at, size in written.items():
            library().mark(at, size, 0)
        if any(take.grown):
            library().runtime("ghost_grow")((ctypes.c_uint64 * len(take.grown))(*take.grown))


def _on(stream: int) -> AbstractContextManager[Any]:
    if stream == _C._cuda_getCurrentRawStream(torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream())


def streams() -> tuple[int, ...]:  # the current one, and those in the captured graph
    return _C._cuda_getCurrentRawStream(torch.cuda.current_device()), *asked("ghost_captured", GRAPH)[4:]


def _listen(what: Literal["all"] | None) -> None:
    torch.cuda.memory._record_memory_history(what, context=None, stacks="python", max_entries=1 << 16)


def _history() -> list[dict[str, Any]]:
    for one in NO_POOL:  # torch 2.11 gives back a reference to each that it never took
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    return list(_C._cuda_memorySnapshot(NO_POOL)["device_traces"][torch.cuda.current_device()])


def asked(name: str, kind: Any) -> list[int]:
    found = kind()
    library().runtime(name)(found)
    return list(found)
