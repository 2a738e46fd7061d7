"""torch's CUDACachingAllocator as arithmetic: native backend, default settings.

Sizes are rounded to 512 bytes and served best fit (by size, then address) from free lists, one pair for each
(memory pool, stream). A request up to 1 MiB comes from 2 MiB segments, one under 10 MiB from 20 MiB segments,
a larger one from a segment of its own. Segments follow each other; a driver places them elsewhere, which
decides among free blocks of one size.
"""

import torch

from runtime.server.units import GIB, MIB
from runtime.simulate.blocks import Block, FreeList

MIN_BLOCK = 512
SMALL_LIMIT = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_LIMIT = 10 * MIB
LARGE_ROUNDING = 2 * MIB
_DEFAULT_POOL = 0
_FIRST_ADDRESS = 1 << 40

Lists = tuple[FreeList, FreeList]  # small blocks, large blocks


class SimulatedOutOfMemory(torch.OutOfMemoryError):
    """A subclass of torch's own error. `tried` is the size of the segment; `unallocated` is reserved and
    usable by later requests, which the free blocks of graph pools are not."""

    def __init__(self, tried: int, total: int, free: int, allocated: int, unallocated: int) -> None:
        super().__init__(
            f"CUDA out of memory. Tried to allocate {_shown(tried)}. The GPU has a total capacity of "
            f"{_shown(total)} of which {_shown(free)} is free."
        )
        self.numbers = (tried, free, total, allocated, unallocated)


def _shown(nbytes: int) -> str:
    return f"{nbytes / GIB:.2f} GiB" if nbytes > GIB else f"{nbytes / MIB:.2f} MiB"


def segment_size(rounded: int) -> int:
    """Return the segment that torch requests from the driver if no free block holds `rounded` bytes."""
    if rounded <= SMALL_LIMIT:
        return SMALL_SEGMENT
    if rounded < LARGE_LIMIT:
        return LARGE_SEGMENT
    return -(-rounded // LARGE_ROUNDING) * LARGE_ROUNDING


class CachingAllocator:
    """The allocator of a GPU of `total` bytes (None: unlimited); others use `non_torch`. Both may change."""

    def __init__(self, total: int | None = None, non_torch: int = 0) -> None:
        self.total, self.non_torch = total, non_torch
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self._lists: dict[tuple[int, int], Lists] = {}
        self._current: dict[int, Lists] = {}  # by stream
        self._next_address, self._last_pool = _FIRST_ADDRESS, _DEFAULT_POOL
        self._is_changing = False
        self._late: list[Block] = []

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        self._is_changing = True
        try:
            return self._malloc(nbytes, stream)
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

    def empty_cache(self) -> None:
        """Give back every segment without a live block, except those of graph pools."""
        self._is_changing = True
        try:
            self._release_unused()
        finally:
            self._settle()

    @property
    def free_bytes(self) -> int | None:
        """Return the bytes that the driver would report as free."""
        return None if self.total is None else max(0, self.total - self.non_torch - self.reserved)

    def free_blocks(self) -> tuple[tuple[int, ...], ...]:
        """Return the sizes of the free blocks of every list."""
        return tuple(one.sizes for lists in self._lists.values() for one in lists)

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def new_pool(self) -> int:
        self._last_pool += 1
        return self._last_pool

    def begin_capture(self, pool: int, stream: int = 0) -> None:
        """Serve `stream` from `pool`, which the captured graph keeps."""
        self._current[stream] = self._lists_of(pool, stream)

    def end_capture(self, stream: int = 0) -> None:
        del self._current[stream]

    def _settle(self) -> None:
        self._is_changing = False
        while self._late:
            self.free(self._late.pop(0))

    def _malloc(self, nbytes: int, stream: int) -> Block:
        if nbytes <= 0:
            raise ValueError(f"an allocation of {nbytes} bytes: torch makes none for an empty tensor")
        size = (nbytes + MIN_BLOCK - 1) & -MIN_BLOCK
        small = size <= SMALL_LIMIT
        lists = self._current.get(stream) or self._lists_of(_DEFAULT_POOL, stream)
        free_list = lists[0] if small else lists[1]
        block = free_list.pop_fitting(size) or self._new_segment(segment_size(size), free_list)
        remaining = block.size - size
        if remaining > SMALL_LIMIT or (small and remaining):
            rest = Block(block.address + size, remaining, free_list, block)
            rest.next = block.next
            if rest.next is not None:
                rest.next.prev = rest
            block.next, block.size = rest, size
            free_list.add(rest)
        block.live = True
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def _free(self, block: Block) -> None:
        if not block.live:
            raise ValueError(f"the block at {block.address:#x} is free already")
        self.allocated -= block.size
        free_list, after, before = block.free_list, block.next, block.prev
        block.live = False
        if after is not None and not after.live:
            free_list.remove(after)
            _absorb(block, after)
        if before is not None and not before.live:
            free_list.remove(before)
            _absorb(before, block)
            block = before
        free_list.add(block)

    def _new_segment(self, nbytes: int, free_list: FreeList) -> Block:
        if not self._fits(nbytes) and not self._current:
            self._release_unused()
        if not self._fits(nbytes):
            in_pools = sum(sum(one.sizes) for one in self._free_lists(of_graphs=True))
            unallocated = self.reserved - self.allocated - in_pools
            free = self.free_bytes or 0
            raise SimulatedOutOfMemory(nbytes, self.total or 0, free, self.allocated, unallocated)
        block = Block(self._next_address, nbytes, free_list)
        self._next_address += nbytes
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _fits(self, nbytes: int) -> bool:
        return self.total is None or self.reserved + self.non_torch + nbytes <= self.total

    def _release_unused(self) -> None:
        for free_list in self._free_lists(of_graphs=False):
            for block in list(free_list.blocks.values()):
                if block.prev is None and block.next is None:
                    free_list.remove(block)
                    self.reserved -= block.size

    def _free_lists(self, of_graphs: bool) -> list[FreeList]:
        pools = ((pool != _DEFAULT_POOL, lists) for (pool, _), lists in self._lists.items())
        return [one for is_graphs, lists in pools if is_graphs == of_graphs for one in lists]

    def _lists_of(self, pool: int, stream: int) -> Lists:
        return self._lists.setdefault((pool, stream), (FreeList(), FreeList()))


def _absorb(block: Block, after: Block) -> None:
    block.size += after.size
    block.next = after.next
    if after.next is not None:
        after.next.prev = block
