"""What a device reports of its memory, and torch's message when there is too little. No torch needed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from runtime.server.units import GIB, KIB, MIB

_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"(\d{1,9}(?:\.\d+)?) (bytes|KiB|MiB|GiB)"


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """A reading in bytes. `non_torch` is memory outside torch's allocator; it and `free` are device-wide."""

    total: int
    free: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    non_torch: int


@dataclass(frozen=True, slots=True)
class Held:
    """One of the largest allocations at a peak."""

    bytes: int
    what: str
    where: str


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The numbers of torch's message: exact if predicted, as printed if measured.

    `by_driver`: the driver refused memory outside torch and named no size, so `tried_bytes` is 0.
    """

    tried_bytes: int
    free_bytes: int
    total_bytes: int
    allocated_bytes: int
    reserved_unallocated_bytes: int
    where: str = ""
    by_driver: bool = False


def parse_out_of_memory(message: str, where: str = "") -> OutOfMemory | None:
    """Return the numbers of torch's "CUDA out of memory. Tried to allocate ..."."""
    patterns = {
        "tried_bytes": rf"Tried to allocate {_SIZE}",
        "total_bytes": rf"total capacity of {_SIZE}",
        "free_bytes": rf"of which {_SIZE} is free",
        "allocated_bytes": rf"allocated memory {_SIZE} is allocated by PyTorch",
        "reserved_unallocated_bytes": rf"{_SIZE} is reserved by PyTorch but unallocated",
    }
    found = {name: re.search(pattern, message) for name, pattern in patterns.items()}
    if found["tried_bytes"] is None:
        return None
    tried, total, free, allocated, unused = (_bytes(m) if m else 0 for m in found.values())
    return OutOfMemory(tried, free, total, allocated, unused, where)


def parse_size(text: str) -> int:
    """Return the bytes of torch's `2.98 GiB`."""
    found = re.search(_SIZE, text)
    return _bytes(found) if found else 0


def _bytes(found: re.Match[str]) -> int:
    return round(float(found[1]) * _UNITS[found[2]])
