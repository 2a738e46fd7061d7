"""A GPU predicted: tensors without data, and the memory that they would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from runtime.devices.base import Graph, nothing
from runtime.devices.counted import Counted
from runtime.devices.graph_break import breaks_told_to, fused_told_to
from runtime.devices.layer_loop import loop_with
from runtime.devices.readings import MemoryReading
from runtime.simulate.allocation import Recording
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.compiler import leave_compiler_out
from runtime.simulate.constants import GpuConstants, constants_for
from runtime.simulate.folding import fold, record, replay
from runtime.simulate.known_forwards import Forward, KnownForwards
from runtime.simulate.tensors import tensors_of
from runtime.simulate.tracker import AllocationTracker
from runtime.simulate.workspaces import Workspaces


class Meta(Counted):
    """Of `total` bytes. `fold` skips what repeats; `frames` keeps stacks for a snapshot.

    `overdraft`: how far a start may go beyond `total`, so that it tells what every phase would take.
    """

    def __init__(
        self,
        total: int,
        arch: str = "sm90",
        fold: bool = True,
        frames: bool = False,
        log: bool = False,
        constants: GpuConstants | None = None,
        overdraft: int = 0,
        known: KnownForwards | None = None,
        by_own_kernels: bool = False,
    ) -> None:
        model = CachingAllocator(total + overdraft if total else total)
        if frames:
            model.events = []
        self.constants = constants or constants_for(arch)
        self.sm_major = int(arch.removeprefix("sm")[:-1])
        workspaces = Workspaces(gemm_bytes=self.constants.gemm_workspace.bytes)
        super().__init__(AllocationTracker(model, "meta", workspaces, frames=frames, log=log))
        leave_compiler_out()
        self.torch_device = torch.device("meta")
        self._fold, self._overdraft = fold, overdraft
        self._known = None if frames or log else known
        self._by_own_kernels = by_own_kernels
        self.claims: Counter[str] = Counter()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self._fold:
                stack.enter_context(loop_with(partial(fold, tracker=self.tracker)))
            stack.enter_context(breaks_told_to(self.tracker.outside_graph))
            if not self._by_own_kernels:
                stack.enter_context(fused_told_to(self.tracker.as_one_kernel))
            stack.enter_context(self.tracker)
            yield

    def memory(self) -> MemoryReading:
        reading = super().memory()
        return replace(reading, total=reading.total - self._overdraft, free=reading.free - self._overdraft)

    def leave(self, tensor: torch.Tensor) -> None:
        self.tracker.forget(tensor)

    def claim(self, what: str, count: int = 1) -> None:
        if not count:
            return
        self.claims[what] += count
        self.tracker.allocator.non_torch += count * self.constants.claimed(what).bytes

    def _capture(
        self, run: Callable[[], Any], pool: int, warm_ups: int, before: Callable[[], None], name: str
    ) -> Graph:
        counted = self._counting_kernels(run)
        if not (self._fold and warm_ups):
            return self._capture_unfolded(counted, pool, warm_ups, before)
        before()
        kernels, streams = self.tracker.kernels, self.tracker.streams_with_workspace
        key = self._known.next_key(name, streams) if self._known else None
        known = self._known.get(key) if self._known else None
        if known is not None:
            return self._capture_known(known, pool, warm_ups, before)
        outputs, recording = record(counted, self.tracker)
        if self._known and recording is not None and not self._owns(outputs, recording):
            self._known.learn(key, recording, self.tracker.kernels - kernels)
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

    def _owns(self, outputs: Any, recording: Recording) -> bool:
        """Whether the forward itself made what it returns."""
        made = {allocation for is_made, allocation in recording.steps if is_made}
        return any(self.tracker.allocation_of(tensor) in made for tensor in tensors_of(outputs))

    def _capture_known(self, known: Forward, pool: int, warm_ups: int, before: Callable[[], None]) -> Graph:
        """As `_capture` of a forward that leaves nothing behind, without its first run."""
        replay(known.recording, self.tracker)
        self.tracker.kernels += known.kernels
        self.claim("graph node", known.kernels)
        return self._capture_replayed({}, known.recording, pool, warm_ups - 1, before)

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
            self.tracker.in_graph = True
            kept = replay(recording, self.tracker)
            self.tracker.in_graph = False
        for recorded, tensor in owned.items():
            assert recorded is not None
            self.tracker.adopt(tensor, kept[recorded])
        return Graph(outputs, nothing)
