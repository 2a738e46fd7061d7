"""A device whose memory is counted, tensor by tensor, by a model of torch's allocator."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from runtime.devices.base import Device, Graph, kind_of, nothing
from runtime.devices.readings import Held, MemoryReading
from runtime.simulate.blocks import Block
from runtime.simulate.tracker import AllocationTracker

SIDE_STREAM, FIRST_CAPTURE_STREAM = 1, 2


class Counted(Device):
    def __init__(self, tracker: AllocationTracker) -> None:
        self.tracker = tracker
        self._is_active = False
        self._capture_streams: dict[str, int] = {}
        # The random generator's seed and offset, which torch allocates with the first graph's pool.
        self._graph_seeds: list[Block] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        counting = nullcontext() if self._is_active else self._counting()
        before, self._is_active = self._is_active, True
        try:
            with counting:
                yield
        finally:
            self._is_active = before

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with self.tracker:
            yield

    def memory(self) -> MemoryReading:
        model = self.tracker.allocator
        return MemoryReading(
            total=model.total or 0,
            free=model.free_bytes or 0,
            allocated=model.allocated,
            reserved=model.reserved,
            peak_allocated=model.peak_allocated,
            peak_reserved=model.peak_reserved,
            non_torch=model.non_torch,
        )

    def reset_peak(self) -> None:
        self.tracker.reset_peak()

    def largest_at_peak(self, count: int) -> list[Held]:
        return [Held(a.nbytes, a.what, a.where) for a in self.tracker.largest_at_peak(count)]

    def in_phase(self, name: str) -> None:
        self.tracker.phase = name

    def empty_cache(self) -> None:
        self.tracker.allocator.empty_cache()

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        with self._stream(SIDE_STREAM):
            yield

    @contextmanager
    def _stream(self, stream: int) -> Iterator[None]:
        previous, self.tracker.stream = self.tracker.stream, stream
        try:
            yield
        finally:
            self.tracker.stream = previous

    def graph_pool(self) -> int:
        return self.tracker.allocator.new_pool()

    def capture(
        self, run: Callable[[], Any], pool: int, before: Callable[[], None] = nothing, name: str = ""
    ) -> Graph:
        with self._stream(self._stream_of(name)):
            return self._capture(run, pool, before)

    def _stream_of(self, graph: str) -> int:
        kind = kind_of(graph)
        return self._capture_streams.setdefault(kind, FIRST_CAPTURE_STREAM + len(self._capture_streams))

    @abstractmethod
    def _capture(self, run: Callable[[], Any], pool: int, before: Callable[[], None]) -> Graph: ...

    @contextmanager
    def _captured(self, pool: int) -> Iterator[None]:
        model = self.tracker.allocator
        model.empty_cache()  # as `torch.cuda.graph` does first
        if not self._graph_seeds:
            self._graph_seeds = [model.malloc(8, self.tracker.stream) for _ in range(2)]
        model.begin_capture(pool, self.tracker.stream)
        try:
            yield
        finally:
            model.end_capture(self.tracker.stream)
