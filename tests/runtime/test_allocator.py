"""The allocator model: sizes, segments, splits, private pools and the error, on cases worked out by hand."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.server.units import GIB, MIB
from runtime.simulate import allocator
from runtime.simulate.allocator import CachingAllocator, SimulatedOutOfMemory
from runtime.simulate.blocks import Block


@pytest.mark.parametrize(
    ("nbytes", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (31 * MIB, 32 * MIB, 32 * MIB),
    ],
)
def test_a_request_gets_torchs_block_and_segment(nbytes: int, block: int, segment: int) -> None:
    allocator = CachingAllocator()
    made = allocator.malloc(nbytes)
    assert made.size == block
    assert (allocator.allocated, allocator.reserved) == (block, segment)


def test_a_large_remainder_up_to_one_mib_stays_with_the_block() -> None:
    allocator = CachingAllocator()
    whole = allocator.malloc(30 * MIB)
    allocator.free(whole)
    again = allocator.malloc(29 * MIB)
    assert again.size == 30 * MIB


def test_a_freed_block_is_split_and_merged_back() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(40 * MIB))
    first, second = allocator.malloc(12 * MIB), allocator.malloc(13 * MIB)
    assert second.address == first.address + 12 * MIB
    allocator.free(first)
    allocator.free(second)
    assert allocator.malloc(40 * MIB).address == first.address
    assert allocator.reserved == 40 * MIB


def test_best_fit_takes_the_smallest_block_and_then_the_lowest() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(size * MIB) for size in (40, 30, 30, 50)]
    for block in blocks:
        allocator.free(block)
    assert allocator.malloc(29 * MIB).address == min(blocks[1].address, blocks[2].address)


def test_streams_do_not_share_cached_blocks() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(64 * MIB, stream=0))
    allocator.malloc(64 * MIB, stream=1)
    assert allocator.reserved == 128 * MIB


def test_empty_cache_gives_back_whole_segments_only() -> None:
    allocator = CachingAllocator()
    kept = allocator.malloc(MIB)
    allocator.free(allocator.malloc(MIB))
    allocator.free(allocator.malloc(64 * MIB))
    allocator.empty_cache()
    assert allocator.reserved == 2 * MIB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_peaks_can_be_reset() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(64 * MIB))
    allocator.reset_peaks()
    allocator.malloc(MIB)
    assert (allocator.peak_allocated, allocator.peak_reserved) == (MIB, 66 * MIB)


def test_cached_blocks_are_released_before_an_error_is_raised() -> None:
    allocator = CachingAllocator(total=100 * MIB, non_torch=10 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    assert allocator.reserved == 80 * MIB


def test_the_error_has_torchs_numbers() -> None:
    allocator = CachingAllocator(total=100 * GIB, non_torch=2 * GIB)
    allocator.malloc(70 * GIB)
    rest = allocator.malloc(25 * GIB)
    allocator.malloc(3 * MIB)
    allocator.free(rest)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        allocator.malloc(30 * GIB + 1)
    assert isinstance(caught.value, SimulatedOutOfMemory)
    free = 98 * GIB - 70 * GIB - 20 * MIB
    tried = 30 * GIB + 2 * MIB
    assert caught.value.numbers == (tried, free, 100 * GIB, 70 * GIB + 3 * MIB, 17 * MIB)
    assert str(caught.value).startswith("CUDA out of memory. Tried to allocate 30.00 GiB. The GPU")
    assert allocator.malloc(27 * GIB).size == 27 * GIB


class TestGraphPools:
    def test_a_graph_pool_shares_no_blocks_with_others_but_serves_later_captures(self) -> None:
        allocator = CachingAllocator()
        allocator.free(allocator.malloc(64 * MIB))
        pool = allocator.new_pool()
        for size in (64, 48):
            allocator.begin_capture(pool)
            allocator.free(allocator.malloc(size * MIB))
            allocator.end_capture()
        assert allocator.reserved == 128 * MIB

    def test_ascending_captures_cannot_reuse_what_smaller_ones_freed(self) -> None:
        reserved = {}
        for order in ("descending", "ascending"):
            allocator, sizes = CachingAllocator(), range(20, 200, 10)
            pool = allocator.new_pool()
            for size in sizes if order == "ascending" else reversed(sizes):
                allocator.begin_capture(pool)
                allocator.free(allocator.malloc(size * MIB))
                allocator.end_capture()
            reserved[order] = allocator.reserved
        assert reserved == {"descending": 190 * MIB, "ascending": sum(range(20, 200, 10)) * MIB}

    def test_only_the_captured_stream_uses_the_pool(self) -> None:
        allocator = CachingAllocator()
        allocator.begin_capture(allocator.new_pool(), stream=7)
        outside, inside = allocator.malloc(MIB, stream=0), allocator.malloc(MIB, stream=7)
        allocator.end_capture(stream=7)
        assert outside.free_list is not inside.free_list

    def test_a_pool_keeps_what_its_graphs_took(self) -> None:
        allocator = CachingAllocator()
        allocator.begin_capture(allocator.new_pool())
        allocator.free(allocator.malloc(64 * MIB))
        allocator.end_capture()
        allocator.empty_cache()
        assert allocator.reserved == 64 * MIB

    def test_what_private_pools_hold_is_not_counted_as_usable(self) -> None:
        allocator = CachingAllocator(total=GIB)
        allocator.begin_capture(allocator.new_pool())
        allocator.free(allocator.malloc(256 * MIB))
        allocator.end_capture()
        with pytest.raises(SimulatedOutOfMemory) as caught:
            allocator.malloc(GIB)
        assert caught.value.numbers == (GIB, 768 * MIB, GIB, 0, 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 64 * MIB), st.integers(0, 2)), max_size=200))
@settings(max_examples=60, deadline=None)
def test_blocks_fill_their_segments_and_the_counters_agree(steps: list[tuple[bool, int, int]]) -> None:
    allocator = CachingAllocator()
    live: list[Block] = []
    for is_free, number, stream in steps:
        if is_free and live:
            allocator.free(live.pop(number % len(live)))
        else:
            live.append(allocator.malloc(number, stream))
    held = sum(block.size for block in live)
    assert allocator.allocated == held
    assert allocator.reserved == held + sum(map(sum, allocator.free_blocks()))
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.reserved == 0, "all free neighbours were merged into whole segments"


def test_a_block_is_not_freed_twice() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(MIB)
    allocator.free(block)
    with pytest.raises(ValueError, match="free already"):
        allocator.free(block)


def test_what_is_freed_in_the_middle_of_a_change_is_free_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage collection frees so: it may run at any line that makes an object."""
    model = CachingAllocator()
    first, second = model.malloc(4 * MIB), model.malloc(4 * MIB)
    model.free(second)
    waiting = [first]

    def collecting(*told: Any) -> Block:
        if waiting:
            model.free(waiting.pop())
        return Block(*told)

    monkeypatch.setattr(allocator, "Block", collecting)
    third = model.malloc(3 * MIB)
    assert not waiting and not first.live and model.allocated == 3 * MIB
    model.free(third)
    assert model.allocated == 0 and len(model.free_blocks()[1]) == 1
    model.empty_cache()
    assert model.reserved == 0 and not any(map(len, model.free_blocks()))
