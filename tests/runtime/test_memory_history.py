"""Reading torch's record of allocations backwards finds what was live at the peak."""

from pathlib import Path
from typing import Any

from runtime.devices.cuda import largest_at_peak
from runtime.layers import norm

LINES = Path(norm.__file__).read_text().splitlines()
ASKS = next(number for number, line in enumerate(LINES, 1) if "torch.empty(" in line)
FRAMES = [
    {"filename": "/usr/lib/torch/x.py", "line": 1, "name": "inner"},
    {"filename": norm.__file__, "line": ASKS, "name": "__init__"},
]


def _event(time: int, action: str, address: int, size: int) -> dict[str, Any]:
    return {"time_us": time, "action": action, "addr": address, "size": size, "frames": FRAMES}


def _block(address: int, size: int, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": address, "size": size, "state": state, "frames": FRAMES}


# A peak of 16 + 64 + 32 bytes in the middle, then other things.
TRACE = [
    _event(1, "alloc", 0, 16),
    _event(2, "alloc", 16, 64),
    _event(3, "alloc", 80, 32),
    _event(4, "free_completed", 16, 64),
    _event(5, "alloc", 16, 8),
    _event(6, "free_completed", 16, 8),
    _event(7, "alloc", 24, 4),
]
BLOCKS = [_block(0, 16), _block(16, 8, "inactive"), _block(24, 4), _block(80, 32)]
SNAPSHOT = {"segments": [{"device": 0, "blocks": BLOCKS}], "device_traces": [TRACE]}


def test_the_largest_at_the_peak_are_those_live_then() -> None:
    assert [held.bytes for held in largest_at_peak(SNAPSHOT, 0, since_us=0, count=3)] == [64, 32, 16]


def test_only_what_came_later_counts() -> None:
    assert [held.bytes for held in largest_at_peak(SNAPSHOT, 0, since_us=7, count=3)] == [4]
    assert largest_at_peak(SNAPSHOT, 0, since_us=8, count=3) == []


def test_the_runtimes_line_is_named() -> None:
    [held] = largest_at_peak(SNAPSHOT, 0, since_us=0, count=1)
    assert held.where == f"layers/norm.py:{ASKS} __init__" and "torch.empty(" in held.what
