"""torch's CUDACachingAllocator as arithmetic: native backend, default settings, exact to the byte.

Sizes are rounded to 512 bytes and served best fit (by size, then address) from free lists, one pair for each
(memory pool, stream). A request up to 1 MiB comes from 2 MiB segments, one under 10 MiB from 20 MiB segments,
a larger one from a segment of its own. The driver chooses a segment's address, which decides among free
blocks of one size, so an `AddressSpace` models the driver.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from runtime.server.units import MIB
from runtime.simulate.addresses import AddressSpace
from runtime.simulate.blocks import ADDRESS_BITS, ADDRESS_MASK, DEFAULT_POOL, Block, Event, FreeList, Segment
from runtime.simulate.oom import MemoryState, SimulatedOutOfMemory

MIN_BLOCK = 512
SMALL_LIMIT = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_LIMIT = 10 * MIB
LARGE_ROUNDING = 2 * MIB


def segment_size(rounded: int) -> int:
    """Return the segment that torch requests from the driver if no free block holds `rounded` bytes."""
    if rounded <= SMALL_LIMIT:
        return SMALL_SEGMENT
    if rounded < LARGE_LIMIT:
        return LARGE_SEGMENT
    return -(-rounded // LARGE_ROUNDING) * LARGE_ROUNDING


class CachingAllocator:
    """The allocator of a GPU of `total` bytes (None: unlimited); others use `non_torch`. Both may change."""

    def __init__(
        self, total: int | None = None, non_torch: int = 0, addresses: AddressSpace | None = None
    ) -> None:
        self.total = total
        self.non_torch = non_torch
        self.addresses = addresses or AddressSpace()
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.events: list[Event] | None = None
        self.segments: dict[int, Segment] = {}
        self._lists: dict[tuple[int, int], tuple[FreeList, FreeList]] = {}
        self._current: dict[int, tuple[FreeList, FreeList]] = {}  # by stream
        self._is_changing = False
        self._late: list[Block] = []
        self._capturing: list[tuple[int, int]] = []
        self._next_pool = DEFAULT_POOL + 1

    # -- malloc and free ------------------------------------------------------------------------------------

    def malloc(self, nbytes: int, stream: int = 0, tag: object = None) -> Block:
        self._is_changing = True
        try:
            return self._malloc(nbytes, stream, tag)
        finally:
            self._settle()

    def free(self, block: Block) -> None:
        """Free a block. If garbage collection calls this during a change, the block waits for its end."""
        if self._is_changing:
            self._late.append(block)
            return
        self._is_changing = True
        try:
            self._free(block)
        finally:
            self._settle()

    def _settle(self) -> None:
        self._is_changing = False
        while self._late:
            self.free(self._late.pop(0))

    def _malloc(self, nbytes: int, stream: int, tag: object) -> Block:
        if nbytes <= 0:
            raise ValueError(f"an allocation of {nbytes} bytes: torch makes none for an empty tensor")
        size = (nbytes + MIN_BLOCK - 1) & -MIN_BLOCK
        small = size <= SMALL_LIMIT
        lists = self._current.get(stream) or self._lists_of(DEFAULT_POOL, stream)
        free_list = lists[0] if small else lists[1]
        keys = free_list.keys
        i = bisect_left(keys, size << ADDRESS_BITS)
        if i < len(keys):
            block = free_list.blocks.pop(keys.pop(i) & ADDRESS_MASK)
        else:
            block = self._new_segment(size, free_list, tag)
        remaining = block.size - size
        if remaining > SMALL_LIMIT or (small and remaining):
            rest = Block(block.address + size, remaining, free_list, block)
            rest.next = block.next
            if rest.next is not None:
                rest.next.prev = rest
            block.next = rest
            block.size = size
            insort(keys, remaining << ADDRESS_BITS | rest.address)
            free_list.blocks[rest.address] = rest
        block.live = True
        block.requested = nbytes
        block.tag = tag
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        self._log("alloc", block.address, block.size, free_list, tag)
        return block

    def _free(self, block: Block) -> None:
        if not block.live:
            raise ValueError(f"the block at {block.address:#x} is free already")
        self.allocated -= block.size
        free_list = block.free_list
        self._log("free", block.address, block.size, free_list, block.tag)
        block.live = False
        block.requested = 0
        block.tag = None
        after = block.next
        if after is not None and not after.live:
            free_list.remove(after)
            self._absorb(block, after)
        before = block.prev
        if before is not None and not before.live:
            free_list.remove(before)
            self._absorb(before, block)
            block = before
        insort(free_list.keys, block.size << ADDRESS_BITS | block.address)
        free_list.blocks[block.address] = block

    @staticmethod
    def _absorb(block: Block, after: Block) -> None:
        block.size += after.size
        block.next = after.next
        if after.next is not None:
            after.next.prev = block

    # -- segments -------------------------------------------------------------------------------------------

    @property
    def free_bytes(self) -> int | None:
        """Return the bytes that the driver would report as free."""
        return None if self.total is None else max(0, self.total - self.non_torch - self.reserved)

    def empty_cache(self) -> None:
        """Give back every segment without a live block, except those of graph pools in use."""
        self._is_changing = True
        try:
            self._release_unused()
        finally:
            self._settle()

    def _release_unused(self) -> None:
        for (pool, _), lists in self._lists.items():
            if pool == DEFAULT_POOL:
                for free_list in lists:
                    self._release_segments(free_list)

    def free_blocks(self) -> tuple[tuple[int, ...], ...]:
        """Return every free block of every list. States with equal lists serve requests equally."""
        return tuple(tuple(free_list.keys) for lists in self._lists.values() for free_list in lists)

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _new_segment(self, size: int, free_list: FreeList, tag: object) -> Block:
        nbytes = segment_size(size)
        if not self._fits(nbytes) and not self._capturing:
            self._release_unused()
        if not self._fits(nbytes):
            self._log("oom", self.free_bytes or 0, nbytes, free_list, tag)
            raise SimulatedOutOfMemory(nbytes, self._state())
        block = Block(self.addresses.take(nbytes), nbytes, free_list)
        self.segments[block.address] = Segment(block.address, nbytes, free_list, block)
        self.reserved += nbytes
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved
        self._log("segment_alloc", block.address, nbytes, free_list, tag)
        return block

    def _fits(self, nbytes: int) -> bool:
        return self.total is None or self.reserved + self.non_torch + nbytes <= self.total

    def _release_segments(self, free_list: FreeList) -> None:
        for block in list(free_list.blocks.values()):
            if block.prev is None and block.next is None:
                free_list.remove(block)
                del self.segments[block.address]
                self.addresses.give(block.address, block.size)
                self.reserved -= block.size
                self._log("segment_free", block.address, block.size, free_list)

    def _log(self, action: str, address: int, size: int, free_list: FreeList, tag: object = None) -> None:
        if self.events is not None:
            self.events.append(Event(action, address, size, free_list, tag))

    def _state(self) -> MemoryState:
        private = (lists for (pool, _), lists in self._lists.items() if pool != DEFAULT_POOL)
        cached = sum(block.size for lists in private for one in lists for block in one.blocks.values())
        return MemoryState(self.total or 0, self.free_bytes or 0, self.allocated, self.reserved, cached)

    # -- memory pools of CUDA graphs ------------------------------------------------------------------------

    def new_pool(self) -> int:
        pool = self._next_pool
        self._next_pool += 1
        return pool

    def begin_capture(self, pool: int, stream: int = 0) -> None:
        """Serve `stream` from `pool`, which the captured graph keeps."""
        self._current[stream] = self._lists_of(pool, stream)
        self._capturing.append((pool, stream))

    def end_capture(self) -> None:
        _, stream = self._capturing.pop()
        del self._current[stream]

    def _lists_of(self, pool: int, stream: int) -> tuple[FreeList, FreeList]:
        lists = self._lists.get((pool, stream))
        if lists is None:
            lists = (FreeList(pool, stream, small=True), FreeList(pool, stream, small=False))
            self._lists[(pool, stream)] = lists
        return lists
