"""Where the driver puts a segment: torch breaks ties between free blocks of one size by address."""

from __future__ import annotations

from bisect import insort

_FIRST = 0x7F00_0000_0000
_GRANULE = 2 << 20


class AddressSpace:
    """Addresses that only grow, except that the lowest freed range that is large enough is used again."""

    def __init__(self) -> None:
        self._end = _FIRST
        self._holes: list[tuple[int, int]] = []  # (address, size), in address order

    def take(self, nbytes: int) -> int:
        nbytes = -(-nbytes // _GRANULE) * _GRANULE
        for i, (address, size) in enumerate(self._holes):
            if size >= nbytes:
                self._holes[i : i + 1] = [(address + nbytes, size - nbytes)] if size > nbytes else []
                return address
        address, self._end = self._end, self._end + nbytes
        return address

    def give(self, address: int, nbytes: int) -> None:
        nbytes = -(-nbytes // _GRANULE) * _GRANULE
        insort(self._holes, (address, nbytes))
        merged: list[tuple[int, int]] = []
        for start, size in self._holes:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((start, size))
        self._holes = merged
