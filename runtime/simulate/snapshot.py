"""A prediction as PyTorch's memory snapshot, which the memory_viz page opens like a recorded one.

Built only from builtin types and pickled with protocol 4, which that page reads.
"""

from __future__ import annotations

import pickle
from typing import Any, BinaryIO

from runtime.simulate.allocation import Allocation
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.blocks import Block, Event, Segment

_PROTOCOL = 4


def snapshot(allocator: CachingAllocator) -> dict[str, Any]:
    """Return the whole log and what is allocated now; it needs `Meta(frames=True)`, which keeps both."""
    if allocator.events is None:
        raise ValueError("this allocator kept no log: predict with frames=True")
    trace: list[dict[str, Any]] = []
    for time_us, event in enumerate(allocator.events):
        trace += _entries(event, time_us)
    return {
        "segments": [_segment(segment) for segment in allocator.segments.values()],
        "device_traces": [trace],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        "external_annotations": [],
    }


def write_snapshot(allocator: CachingAllocator, file: BinaryIO) -> None:
    file.write(pickle.dumps(snapshot(allocator), protocol=_PROTOCOL))


def _entries(event: Event, time_us: int) -> list[dict[str, Any]]:
    pool = (0, event.free_list.pool)
    entry = {
        "action": event.action,
        "size": event.size,
        "stream": event.free_list.stream,
        "time_us": time_us,
        "compile_context": "N/A",
        "user_metadata": "",
        "segment_pool_id": pool,
        "pool_id": pool,
        "frames": _frames(event.tag),
    }
    if event.action == "oom":
        return [{**entry, "device_free": event.address}]
    entry["addr"] = event.address
    if event.action == "free":
        return [{**entry, "action": "free_requested"}, {**entry, "action": "free_completed"}]
    return [entry]


def _segment(segment: Segment) -> dict[str, Any]:
    blocks = [_block(block) for block in segment.blocks()]
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": active,
        "active_size": active,
        "requested_size": sum(block["requested_size"] for block in blocks),
        "stream": segment.free_list.stream,
        "segment_type": "small" if segment.free_list.small else "large",
        "segment_pool_id": (0, segment.free_list.pool),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": "active_allocated" if block.live else "inactive",
        "frames": _frames(block.tag),
    }


def _frames(tag: object) -> list[dict[str, Any]]:
    """Return the frames, innermost first, after one that names the allocated thing."""
    if not isinstance(tag, Allocation):
        return []
    frames = [{"filename": file, "line": line, "name": name} for file, line, name in tag.frames]
    return [{"filename": "??", "line": 0, "name": tag.what}, *frames]
