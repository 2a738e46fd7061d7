"""The pieces of the allocator model: blocks of segments, and the free lists that serve them best fit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

DEFAULT_POOL = 0
ADDRESS_BITS = 48
ADDRESS_MASK = (1 << ADDRESS_BITS) - 1


class Block:
    """A piece of a segment; `prev` and `next` are its neighbours in the segment."""

    __slots__ = ("address", "free_list", "live", "next", "prev", "requested", "size", "tag")

    def __init__(self, address: int, size: int, free_list: FreeList, prev: Block | None = None) -> None:
        self.address = address
        self.size = size
        self.free_list = free_list
        self.prev = prev
        self.next: Block | None = None
        self.live = False
        self.requested = 0
        self.tag: object = None


@dataclass(slots=True, eq=False)
class FreeList:
    """The free blocks of one (memory pool, stream, small or large), smallest first, then lowest address."""

    pool: int
    stream: int
    small: bool
    keys: list[int] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)  # by address

    def add(self, block: Block) -> None:
        insort(self.keys, block.size << ADDRESS_BITS | block.address)
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        del self.keys[bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)]
        del self.blocks[block.address]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the allocator's log, for a memory snapshot."""

    action: str  # segment_alloc | alloc | free | segment_free | oom
    address: int
    size: int
    free_list: FreeList
    tag: object = None


@dataclass(frozen=True, slots=True)
class Segment:
    address: int
    size: int
    free_list: FreeList
    first: Block

    def blocks(self) -> Iterator[Block]:
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next
