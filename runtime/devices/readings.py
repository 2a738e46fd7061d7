"""What a device reports of its memory, and torch's message when there is too little. No torch needed."""

import re
from dataclasses import dataclass

from runtime.server.units import GIB, KIB, MIB

_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"(\d{1,9}(?:\.\d+)?) ?(bytes|KiB|MiB|GiB)"
# Torch's words without their blanks: terminals and web pages break them anywhere.
_TORCH = {
    "tried": rf"Triedtoallocate{_SIZE}",
    "total": rf"totalcapacit?yof{_SIZE}|;{_SIZE}totalcapacity",
    "free": rf"(?<!\d)(?<!\d\.){_SIZE}(?:is)?free",
    "allocated": rf"allocatedmemory{_SIZE}isallocatedbyPyTorch|;{_SIZE}alreadyallocated",
    "unused": rf"(?<!\d)(?<!\d\.){_SIZE}isreservedbyPyTorchbutunallocated",
    "process": rf"[Tt]hisprocesshas{_SIZE}memoryinuse",
}


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

    @property
    def shows_free(self) -> bool:
        return bool(self.total_bytes or self.free_bytes)


def parse_out_of_memory(message: str, where: str = "") -> OutOfMemory | None:
    """Return the numbers of torch's message, without a total where the free bytes are cut off."""
    read = torch_numbers(message)
    if "tried" not in read:
        return None
    total, free = read.get("total", 0) if "free" in read else 0, read.get("free", 0)
    return OutOfMemory(read["tried"], free, total, read.get("allocated", 0), read.get("unused", 0), where)


def torch_numbers(message: str) -> dict[str, int]:
    """Return the bytes that the message of torch shows, by the names of `_TORCH`."""
    bare = re.sub(r"\s+", "", message)
    return {name: _bytes(m) for name, pattern in _TORCH.items() if (m := re.search(pattern, bare))}


def _bytes(found: re.Match[str]) -> int:
    size, unit = filter(None, found.groups())
    return round(float(size) * _UNITS[unit])
