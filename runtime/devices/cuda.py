"""A real GPU: readings from the driver, from torch's allocator and its history; CUDA graphs."""

import heapq
import linecache
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from runtime.devices.base import WARM_UPS, Device, Graph, MemoryReading, kind_of, nothing
from runtime.devices.readings import Held
from runtime.simulate.frames import RUNTIME

_HISTORY_EVENTS = 1_000_000


class Cuda(Device):
    """A GPU. With `history` torch records allocations with their stacks, to find the largest at a peak.

    `others` are the bytes that other processes hold on the GPU; they are not counted.
    """

    def __init__(self, index: int = 0, history: bool = False, others: int = 0) -> None:
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        self.sm_major = torch.cuda.get_device_capability(self.torch_device)[0]
        self._history, self._others = history, others
        self._recording = False
        self._reset_us = 0.0
        self._capture_streams: dict[str, torch.cuda.Stream] = {}
        self._side_stream = torch.cuda.Stream(self.torch_device)

    @contextmanager
    def active(self) -> Iterator[None]:
        if not self._history or self._recording:
            yield
            return
        self._recording = True
        torch.cuda.memory._record_memory_history(
            context="alloc", stacks="python", max_entries=_HISTORY_EVENTS
        )
        try:
            yield
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
            self._recording = False

    def memory(self) -> MemoryReading:
        self.synchronize()
        free, total = torch.cuda.mem_get_info(self.torch_device)
        stats = torch.cuda.memory_stats_as_nested_dict(self.torch_device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return MemoryReading(
            total=total,
            free=free,
            allocated=allocated["current"],
            reserved=reserved["current"],
            peak_allocated=allocated["peak"],
            peak_reserved=reserved["peak"],
            non_torch=max(0, total - free - reserved["current"] - self._others),
        )

    def reset_peak(self) -> None:
        self.synchronize()
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        self._reset_us = time.time() * 1e6

    def largest_at_peak(self, count: int) -> list[Held]:
        if not self._history:
            return []
        snapshot = torch.cuda.memory._snapshot(self.torch_device)
        return largest_at_peak(snapshot, self.torch_device.index, self._reset_us, count)

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        with self._on(self._side_stream):
            yield

    @contextmanager
    def _on(self, stream: torch.cuda.Stream) -> Iterator[None]:
        current = torch.cuda.current_stream(self.torch_device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            yield
        current.wait_stream(stream)

    def graph_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def capture(
        self, run: Callable[[], Any], pool: Any, before: Callable[[], None] = nothing, name: str = ""
    ) -> Graph:
        stream = self._capture_streams.get(kind_of(name)) or torch.cuda.Stream(self.torch_device)
        self._capture_streams[kind_of(name)] = stream
        with self._on(stream):
            for _ in range(WARM_UPS):
                self.synchronize()
                before()
                run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                outputs = run()
        return Graph(outputs, graph.replay)


def largest_at_peak(snapshot: Mapping[str, Any], device: int, since_us: float, count: int) -> list[Held]:
    """Return the largest allocations made since `since_us` that were live when the total was highest.

    The record is walked backwards from what is live now.
    """
    live = {
        block["address"]: block
        for segment in snapshot["segments"]
        if segment["device"] == device
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    total = sum(block["size"] for block in live.values())
    peak, at_peak = total, list(live.values())
    trace = [event for event in snapshot["device_traces"][device] if event["time_us"] >= since_us]
    for event in reversed(trace):
        if event["action"] == "alloc" and event["addr"] in live:
            total -= live.pop(event["addr"])["size"]
        elif event["action"] == "free_completed":
            live[event["addr"]] = event
            total += event["size"]
            if total > peak:
                peak, at_peak = total, list(live.values())
    older = {id(block) for block in live.values()}
    made = [block for block in at_peak if id(block) not in older]
    return [_held(block) for block in heapq.nlargest(count, made, key=lambda block: block["size"])]


def _held(block: Mapping[str, Any]) -> Held:
    """Return an allocation. torch records no shapes, so the line that asked for memory describes it."""
    frames = block.get("frames", ())
    frame = next((frame for frame in frames if frame["filename"].startswith(RUNTIME)), None)
    if frame is None:
        return Held(block["size"], "", "")
    file = frame["filename"].removeprefix(RUNTIME)
    what = linecache.getline(frame["filename"], frame["line"]).strip()
    return Held(block["size"], what, f"{file}:{frame['line']} {frame['name']}")
