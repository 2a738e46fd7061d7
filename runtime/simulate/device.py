"""The two devices whose memory is counted and not measured: meta tensors as a GPU's, and the CPU's own."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from runtime.devices.base import Device, Graph, MemoryReading, nothing
from runtime.simulate.allocation import Recording
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.blocks import Block
from runtime.simulate.constants import GpuConstants, constants_for
from runtime.simulate.folding import fold_with, record, replay, tensors_of
from runtime.simulate.tracker import AllocationTracker
from runtime.simulate.workspaces import Workspaces
from runtime.start.run_record import Held

CAPTURE_STREAM, SIDE_STREAM = 1, 2


class _Counted(Device):
    def __init__(self, tracker: AllocationTracker) -> None:
        self.tracker = tracker
        self._depth = 0
        # The random generator's seed and offset, which torch puts beside the first graph's pool.
        self._graph_seeds: list[Block] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        with ExitStack() as stack:
            if not self._depth:
                stack.enter_context(self._counting())
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

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

    def label(self, tensor: torch.Tensor, name: str) -> None:
        allocation = self.tracker.allocation_of(tensor)
        if allocation is not None:
            allocation.op = name

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
        self, run: Callable[[], Any], pool: int, warm_ups: int = 2, before: Callable[[], None] = nothing
    ) -> Graph:
        with self._stream(CAPTURE_STREAM):
            return self._capture(run, pool, warm_ups, before)

    @abstractmethod
    def _capture(
        self, run: Callable[[], Any], pool: int, warm_ups: int, before: Callable[[], None]
    ) -> Graph: ...

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
            model.end_capture()


class Cpu(_Counted):
    """Computes for real; memory is unlimited, and a graph is its forward run again."""

    def __init__(self, log: bool = False, frames: bool = False) -> None:
        super().__init__(AllocationTracker(CachingAllocator(), "cpu", log=log, frames=frames))
        self.torch_device = torch.device("cpu")

    def _capture(self, run: Callable[[], Any], pool: int, warm_ups: int, before: Callable[[], None]) -> Graph:
        for _ in range(warm_ups):
            before()
            run()
        with self._captured(pool):
            outputs = run()

        def replay() -> None:
            for held, new in zip(tensors_of(outputs), tensors_of(run()), strict=True):
                held.copy_(new)

        return Graph(outputs, replay)


class Meta(_Counted):
    """Predicts a GPU of `total` bytes. `fold` skips what repeats; `frames` keeps stacks for a snapshot."""

    def __init__(
        self,
        total: int,
        arch: str = "sm90",
        fold: bool = True,
        frames: bool = False,
        log: bool = False,
        constants: GpuConstants | None = None,
    ) -> None:
        model = CachingAllocator(total)
        if frames:
            model.events = []
        self.constants = constants or constants_for(arch)
        self.sm_major = int(arch.removeprefix("sm")[:-1])
        workspaces = Workspaces(gemm_bytes=self.constants.gemm_workspace.bytes)
        super().__init__(AllocationTracker(model, "meta", workspaces, frames=frames, log=log))
        self.torch_device = torch.device("meta")
        self._fold = fold
        self.claims: Counter[str] = Counter()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self._fold:
                stack.enter_context(fold_with(self.tracker))
            stack.enter_context(self.tracker)
            yield

    def claim(self, what: str, count: int = 1) -> None:
        self.claims[what] += count
        self.tracker.allocator.non_torch += count * self.constants.claimed(what).bytes

    def _capture(self, run: Callable[[], Any], pool: int, warm_ups: int, before: Callable[[], None]) -> Graph:
        counted = self._counting_kernels(run)
        if not (self._fold and warm_ups):
            return self._capture_unfolded(counted, pool, warm_ups, before)
        before()
        outputs, recording = record(counted, self.tracker)
        if recording is None:
            outputs = None
            return self._capture_unfolded(counted, pool, warm_ups - 1, before)
        return self._capture_replayed(outputs, recording, pool, warm_ups - 1, before)

    def _counting_kernels(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """The first run tells how many nodes the graph will have, and so what the driver takes for it."""
        pending = [True]

        def counted() -> Any:
            before = self.tracker.kernels
            result = run()
            if pending:
                pending.pop()
                self.claim("graph node", self.tracker.kernels - before)
            return result

        return counted

    def _capture_unfolded(
        self, run: Callable[[], Any], pool: int, warm_ups: int, before: Callable[[], None]
    ) -> Graph:
        for _ in range(warm_ups):
            before()
            run()
        with self._captured(pool):
            outputs = run()
        return Graph(outputs, nothing)

    def _capture_replayed(
        self, outputs: Any, recording: Recording, pool: int, warm_ups: int, before: Callable[[], None]
    ) -> Graph:
        """The first warm-up's tensors become the graph's outputs, in the memory of the graph."""
        made = {allocation for is_made, allocation in recording.steps if is_made}
        held = {self.tracker.allocation_of(tensor): tensor for tensor in tensors_of(outputs)}
        owned = {allocation: tensor for allocation, tensor in held.items() if allocation in made}
        for tensor in owned.values():
            self.tracker.forget(tensor)
        for _ in range(warm_ups):
            before()
            for allocation in replay(recording, self.tracker).values():
                self.tracker.free(allocation)
        with self._captured(pool):
            kept = replay(recording, self.tracker)
        for recorded, tensor in owned.items():
            assert recorded is not None
            self.tracker.adopt(tensor, kept[recorded])
        return Graph(outputs, nothing)
