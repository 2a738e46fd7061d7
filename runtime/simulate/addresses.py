"""Where the CUDA driver places a segment, because torch chooses among free blocks of one size by address.

The rules come from 958 segments of one H200 (CUDA 13.0) and place all of them exactly. A segment goes into a
range that the driver already holds, the youngest first, best fit; else into a new range of whole 32 MiB at
the top of the highest gap that leaves 32 MiB spare. An empty range is given back.
"""

from __future__ import annotations

from bisect import insort

from runtime.server.units import MIB

_GRANULE = 2 * MIB
_RANGE = 32 * MIB

_TOP = 0x7F20_0000_0000
# A process's ranges once it has a context: a range of which the context left 28 MiB, a gap below, and from
# 512 MiB further down nothing taken.
_CONTEXT_LEFT = 28 * MIB
_FIRST_GAP = 352 * MIB
_TAKEN_BELOW = 512 * MIB

Hole = tuple[int, int]  # address, size


class _Range:
    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.holes: list[Hole] = [(address, size)]

    def best_fit(self, nbytes: int) -> int | None:
        fitting = [(size, address) for address, size in self.holes if size >= nbytes]
        return min(fitting)[1] if fitting else None

    @property
    def is_empty(self) -> bool:
        return self.holes == [(self.address, self.size)]


class AddressSpace:
    def __init__(self) -> None:
        first = _Range(_TOP, _RANGE)
        _cut(first.holes, _TOP, _RANGE - _CONTEXT_LEFT)
        bottom = _TOP - _FIRST_GAP - _TAKEN_BELOW
        self._gaps: list[Hole] = [(0, bottom), (_TOP - _FIRST_GAP, _FIRST_GAP)]
        self._ranges = [first]  # oldest first
        self._owners: dict[int, _Range] = {}

    def take(self, nbytes: int) -> int:
        nbytes = _rounded(nbytes, _GRANULE)
        for held in reversed(self._ranges):
            address = held.best_fit(nbytes)
            if address is not None:
                break
        else:
            held = self._new_range(_rounded(nbytes, _RANGE))
            address = held.address
        _cut(held.holes, address, nbytes)
        self._owners[address] = held
        return address

    def give(self, address: int, nbytes: int) -> None:
        held = self._owners.pop(address)
        _mend(held.holes, address, _rounded(nbytes, _GRANULE))
        if held.is_empty:
            self._ranges.remove(held)
            _mend(self._gaps, held.address, held.size)

    def _new_range(self, size: int) -> _Range:
        gap, room = next(gap for gap in reversed(self._gaps) if gap[1] >= size + _RANGE)
        address = (gap + room - size) // _RANGE * _RANGE
        _cut(self._gaps, address, size)
        self._ranges.append(_Range(address, size))
        return self._ranges[-1]


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def _cut(holes: list[Hole], address: int, size: int) -> None:
    """Take a piece out of the hole that contains it."""
    for i, (start, room) in enumerate(holes):
        if start <= address < start + room:
            rest = [(start, address - start), (address + size, start + room - address - size)]
            holes[i : i + 1] = [hole for hole in rest if hole[1]]
            return


def _mend(holes: list[Hole], address: int, size: int) -> None:
    """Put a piece back and join it with its neighbours."""
    insort(holes, (address, size))
    joined: list[Hole] = []
    for start, room in holes:
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + room)
        else:
            joined.append((start, room))
    holes[:] = joined
