"""The pieces of the allocator model: blocks of segments, and the free lists that serve them best fit."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

ADDRESS_BITS = 48
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


class Block:
    """A piece of a segment; `prev` and `next` are its neighbours in the segment."""

    __slots__ = ("address", "free_list", "live", "next", "prev", "size")

    def __init__(self, address: int, size: int, free_list: FreeList, prev: Block | None = None) -> None:
        self.address, self.size, self.free_list, self.prev = address, size, free_list, prev
        self.next: Block | None = None
        self.live = False


@dataclass(slots=True, eq=False)
class FreeList:
    """The free blocks of one (memory pool, stream, small or large), smallest first, then lowest address."""

    keys: list[int] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)  # by address

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(key >> ADDRESS_BITS for key in self.keys)

    def add(self, block: Block) -> None:
        insort(self.keys, block.size << ADDRESS_BITS | block.address)
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        del self.keys[bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)]
        del self.blocks[block.address]

    def pop_fitting(self, size: int) -> Block | None:
        """Take the smallest block of `size` bytes or more."""
        place = bisect_left(self.keys, size << ADDRESS_BITS)
        return self.blocks.pop(self.keys.pop(place) & ADDRESS_MASK) if place < len(self.keys) else None
