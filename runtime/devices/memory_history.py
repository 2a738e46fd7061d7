"""Read torch's record of allocations: which were live at the peak, and which code made them."""

from __future__ import annotations

import heapq
import linecache
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.devices.readings import Held
from runtime.simulate.frames import RUNTIME


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
    for event in reversed(_since(snapshot["device_traces"][device], since_us)):
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


def _since(trace: Sequence[Mapping[str, Any]], since_us: float) -> list[Mapping[str, Any]]:
    return [event for event in trace if event["time_us"] >= since_us]


def _held(block: Mapping[str, Any]) -> Held:
    """Return an allocation. torch records no shapes, so the line that asked for memory describes it."""
    frames = block.get("frames", ())
    frame = next((frame for frame in frames if frame["filename"].startswith(RUNTIME)), None)
    if frame is None:
        return Held(block["size"], "", "")
    file = frame["filename"].removeprefix(RUNTIME)
    what = linecache.getline(frame["filename"], frame["line"]).strip()
    return Held(block["size"], what, f"{file}:{frame['line']} {frame['name']}")
