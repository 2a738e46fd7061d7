"""A predicted GPU: tensors without data, and the memory that they would take."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from runtime.devices.base import WARM_UPS, Graph, nothing
from runtime.devices.counted import Counted
from runtime.devices.layer_loop import loop_with
from runtime.simulate.allocation import Step
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.compiler import leave_compiler_out
from runtime.simulate.constants import H200, GpuConstants
from runtime.simulate.folding import fold, record, replay
from runtime.simulate.tensors import tensors_of
from runtime.simulate.tracker import AllocationTracker


class Meta(Counted):
    """A GPU of `total` bytes. `fold` skips repeated layers and forwards."""

    def __init__(
        self,
        total: int,
        arch: str = "sm90",
        fold: bool = True,
        log: bool = False,
        constants: GpuConstants | None = None,
    ) -> None:
        self.constants = constants or H200
        self.sm_major = int(arch.removeprefix("sm")[:-1])
        gemm_bytes = self.constants.gemm_workspace.bytes
        super().__init__(AllocationTracker(CachingAllocator(total), "meta", gemm_bytes, log=log))
        leave_compiler_out()
        self.torch_device = torch.device("meta")
        self._fold = fold
        self.claims: Counter[str] = Counter()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        folding = loop_with(partial(fold, tracker=self.tracker)) if self._fold else nullcontext()
        with folding, self.tracker:
            yield

    def claim(self, what: str, count: int = 1) -> None:
        if not count:
            return
        self.claims[what] += count
        self.tracker.allocator.non_torch += count * self.constants.claimed(what).bytes

    def _capture(self, run: Callable[[], Any], pool: int, before: Callable[[], None]) -> Graph:
        """Capture. The first run counts the graph's nodes, and so the driver's memory for them."""
        before()
        kernels = self.tracker.kernels
        outputs, recording = record(run, self.tracker) if self._fold else (run(), None)
        self.claim("graph node", self.tracker.kernels - kernels)
        if recording is not None:
            return self._capture_replayed(outputs, recording, pool, before)
        outputs = None
        for _ in range(WARM_UPS - 1):
            before()
            run()
        with self._captured(pool):
            outputs = run()
        return Graph(outputs, nothing)

    def _capture_replayed(
        self, outputs: Any, recording: list[Step], pool: int, before: Callable[[], None]
    ) -> Graph:
        """Make the tensors of the first warm-up the graph's outputs, in the memory of the graph."""
        made = {allocation for is_made, allocation in recording if is_made}
        held = {self.tracker.allocation_of(tensor): tensor for tensor in tensors_of(outputs)}
        owned = {allocation: tensor for allocation, tensor in held.items() if allocation in made}
        for tensor in owned.values():
            self.tracker.forget(tensor)
        for _ in range(WARM_UPS - 1):
            before()
            for allocation in replay(recording, self.tracker).values():
                self.tracker.free(allocation)
        with self._captured(pool):
            kept = replay(recording, self.tracker)
        for recorded, tensor in owned.items():
            assert recorded is not None
            self.tracker.adopt(tensor, kept[recorded])
        return Graph(outputs, nothing)
