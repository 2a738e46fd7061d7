"""The CPU: it computes for real, and its memory is counted as a GPU's would be."""

from collections.abc import Callable
from typing import Any

import torch

from runtime.devices.base import WARM_UPS, Graph
from runtime.devices.counted import Counted
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tensors import tensors_of
from runtime.simulate.tracker import AllocationTracker


class Cpu(Counted):
    """A CPU as a device. Its memory is unlimited, and a graph runs its forward again."""

    def __init__(self, log: bool = False) -> None:
        super().__init__(AllocationTracker(CachingAllocator(), "cpu", log=log))
        self.torch_device = torch.device("cpu")

    def _capture(self, run: Callable[[], Any], pool: int, before: Callable[[], None]) -> Graph:
        for _ in range(WARM_UPS):
            before()
            run()
        with self._captured(pool):
            outputs = run()

        def replay() -> None:
            for held, new in zip(tensors_of(outputs), tensors_of(run()), strict=True):
                held.copy_(new)

        return Graph(outputs, replay)
