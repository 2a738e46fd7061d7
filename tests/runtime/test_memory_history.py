"""Reading a record of allocations backwards finds what the tracker saw at the peak."""

from __future__ import annotations

import torch

from runtime.devices.memory_history import largest_at_peak
from runtime.devices.meta import Meta
from runtime.layers.norm import RMSNorm
from runtime.server.units import MIB
from runtime.simulate.snapshot import snapshot


def _block(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="meta")


def _worked() -> tuple[Meta, list[torch.Tensor]]:
    """A peak of 16 + 64 + 32 MiB in the middle, then other things."""
    device = Meta(1 << 40, frames=True)
    with device.active():
        kept = [_block(16)]
        gone = _block(64)
        kept.append(_block(32))
        del gone
        _block(8)
        kept.append(_block(4))
    return device, kept


def test_the_largest_at_the_peak_are_the_trackers() -> None:
    device, _kept = _worked()
    record = snapshot(device.tracker.allocator)
    found = [held.bytes for held in largest_at_peak(record, 0, since_us=0, count=3)]
    assert found == [64 * MIB, 32 * MIB, 16 * MIB]
    assert found == [held.bytes for held in device.largest_at_peak(3)]


def test_only_what_came_later_counts() -> None:
    device, _kept = _worked()
    record = snapshot(device.tracker.allocator)
    last = record["device_traces"][0][-1]["time_us"]
    assert [held.bytes for held in largest_at_peak(record, 0, since_us=last, count=3)] == [4 * MIB]
    assert largest_at_peak(record, 0, since_us=last + 1, count=3) == []


def test_the_runtimes_line_is_named() -> None:
    device = Meta(1 << 40, frames=True)
    with device.active():
        norm = RMSNorm("norm", MIB, 1e-6, torch.bfloat16, torch.device("meta"))
    [held] = largest_at_peak(snapshot(device.tracker.allocator), 0, since_us=0, count=1)
    assert held.bytes == norm.weight.nbytes
    assert held.where.startswith("layers/norm.py:") and "torch.empty(" in held.what
