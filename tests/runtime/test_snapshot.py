"""A predicted snapshot is one that PyTorch's own tools read."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz

from runtime.devices.meta import Meta
from runtime.server.units import MIB
from runtime.simulate.snapshot import snapshot, write_snapshot


def _predict(total: int = 1 << 30) -> Meta:
    device = Meta(total, frames=True)
    with device.active():
        kept = torch.zeros(30 * MIB, dtype=torch.uint8, device="meta")
        torch.zeros(3 * MIB, dtype=torch.uint8, device="meta")
        pool = device.graph_pool()
        graph = device.capture(lambda: kept[: 2 * MIB] + 1, pool)
        device.held = (kept, graph)  # type: ignore[attr-defined]
    return device


def test_numbers_are_the_allocators() -> None:
    model = _predict().tracker.allocator
    segments = snapshot(model)["segments"]
    assert sum(segment["total_size"] for segment in segments) == model.reserved
    assert sum(segment["allocated_size"] for segment in segments) == model.allocated
    assert 0 < sum(segment["requested_size"] for segment in segments) <= model.allocated
    assert {segment["segment_pool_id"][1] > 0 for segment in segments} == {True, False}


def test_the_trace_ends_in_what_is_allocated() -> None:
    model = _predict().tracker.allocator
    [trace] = snapshot(model)["device_traces"]
    live: dict[int, int] = {}
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            del live[entry["addr"]]
    assert sum(live.values()) == model.allocated


def test_frames_say_what_and_where() -> None:
    [trace] = snapshot(_predict().tracker.allocator)["device_traces"]
    frames = next(entry["frames"] for entry in trace if entry["action"] == "alloc")
    assert frames[0]["name"] == f"zeros [{30 * MIB}] uint8"
    assert frames[1]["name"] == "_predict"


def test_an_error_is_in_the_trace() -> None:
    device = _predict(64 * MIB)
    with device.active(), pytest.raises(torch.OutOfMemoryError):
        torch.zeros(60 * MIB, dtype=torch.uint8, device="meta")
    entry = snapshot(device.tracker.allocator)["device_traces"][0][-1]
    assert (entry["action"], entry["size"]) == ("oom", 60 * MIB)


def test_the_file_opens_in_memory_viz(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    with path.open("wb") as file:
        write_snapshot(_predict().tracker.allocator, file)
    opcodes = list(pickletools.genops(path.read_bytes()))
    assert opcodes[0][1] == 4
    assert not any(op.name in ("GLOBAL", "STACK_GLOBAL", "REDUCE") for op, *_ in opcodes)
    data = pickle.loads(path.read_bytes())
    assert "30.0MiB" in _memory_viz.segsum(data)
    assert "cudaMalloc" in _memory_viz.trace(data)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "add_local_files" in plot(data)


def test_without_a_log_there_is_no_snapshot() -> None:
    with pytest.raises(ValueError, match="frames=True"):
        snapshot(Meta(MIB).tracker.allocator)
