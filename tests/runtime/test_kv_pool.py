"""Slots, request rows and packed rows of the KV pool."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.forward.batch import make_extend_batch
from runtime.forward.kv_packing import PackedRow
from runtime.forward.kv_pool import (
    PADDING_REQUEST,
    GqaPool,
    KVPool,
    KVRow,
    PoolExhausted,
    PoolShape,
    ReqToTokenPool,
    SlidingSlots,
    SlotAllocator,
)
from runtime.forward.slots import PADDING_SLOT

CPU = torch.device("cpu")
ROW = KVRow(1, 8, 8)


def _make_pool(tokens: int = 64, requests: int = 4) -> KVPool:
    shape = PoolShape(tokens, 1, (0,), torch.float32, CPU)
    return KVPool(ReqToTokenPool(requests, 32, CPU), SlotAllocator(tokens, CPU), GqaPool(shape, {0: ROW}))


@given(st.lists(st.integers(1, 20), max_size=12), st.randoms())
def test_no_slot_is_in_two_hands_and_none_is_lost(sizes, order):
    allocator, held = SlotAllocator(100, CPU), []
    for size in sizes:
        if size <= allocator.available:
            held.append(allocator.allocate(size))
        elif held:
            allocator.free(held.pop(order.randrange(len(held))))
        taken = [slot for slots in held for slot in slots.tolist()]
        assert len(taken) == len(set(taken)) == 100 - allocator.available
        assert PADDING_SLOT not in taken


def test_an_exhausted_pool_says_what_is_left():
    pool = _make_pool(tokens=8, requests=2)
    pool.slots.allocate(5)
    with pytest.raises(PoolExhausted, match="4 more tokens, but the KV pool has 3 slots left"):
        pool.slots.allocate(4)
    with pytest.raises(PoolExhausted, match="3 more requests, but the table has 2 rows left"):
        pool.requests.allocate(3)
    assert pool.slots.available == 3 and PADDING_REQUEST not in pool.requests.allocate(2)


def test_a_released_request_gives_back_its_row_and_all_of_its_slots():
    pool = _make_pool()
    first, second = pool.requests.allocate(2)
    make_extend_batch([[1] * 5, [1] * 7], [first, second], pool)
    make_extend_batch([[1] * 3], [first], pool, prefix_lens=[5])
    pool.release(first, 8)
    assert pool.slots.available == 64 - 7
    slots = pool.slots.allocate(57).tolist()
    assert set(slots).isdisjoint(pool.requests.table[second, :7].tolist())


def test_sliding_layers_have_slots_of_their_own_and_give_them_back() -> None:
    shape = PoolShape(64, 1, (0, 1), torch.float32, CPU)
    sliding = SlidingSlots(10, [1], shape)
    pool = KVPool(
        ReqToTokenPool(4, 32, CPU), SlotAllocator(64, CPU), GqaPool(shape, {0: ROW, 1: ROW}, sliding)
    )
    first, second = pool.requests.allocate(2)
    make_extend_batch([[1] * 5, [1] * 4], [first, second], pool)
    mapped = sliding.map[pool.requests.table[:, :5].long()][[first, second]].flatten().tolist()
    assert sorted(mapped) == [PADDING_SLOT, *sorted({*mapped} - {PADDING_SLOT})] and max(mapped) <= 10
    with pytest.raises(PoolExhausted, match="2 more tokens, but sliding layers have 1 slots left"):
        make_extend_batch([[1] * 2], [first], pool, prefix_lens=[5])
    assert pool.slots.available == 64 - 9
    pool.release(first, 5)
    assert sliding.available == 6 and pool.slots.available == 64 - 4


def test_a_draft_shares_everything_but_the_buffers():
    target = _make_pool()
    draft = KVPool(target.requests, target.slots, _make_pool().cache)
    target.cache.keys(0).fill_(1)
    assert draft.cache.keys(0).eq(0).all()


@pytest.mark.parametrize(
    "row, nbytes", [(PackedRow(512, 64), 656), (PackedRow(128), 132), (PackedRow(32, 8), 52)]
)
def test_packed_rows_keep_values_to_fp8_precision(row, nbytes):
    torch.manual_seed(0)
    values = torch.randn(50, 1, row.quantized + row.plain) * torch.logspace(-3, 3, 50)[:, None, None]
    packed = row.pack(values)
    assert packed.shape == (50, 1, nbytes) and row.bytes == nbytes and packed.dtype is torch.uint8
    error = (row.unpack(packed) - values).abs()
    quantized, plain = error[..., : row.quantized], error[..., row.quantized :]
    blocks = values[..., : row.quantized].unflatten(-1, (row.blocks, row.block))
    step = blocks.abs().amax(-1, keepdim=True).expand(blocks.shape).flatten(-2) / 448
    assert (quantized <= values[..., : row.quantized].abs() / 16 + step).all()
    assert (plain <= values[..., row.quantized :].abs() / 256).all()


def test_views_of_packed_rows_write_through():
    row = PackedRow(256, 16)
    rows = row.pack(torch.randn(3, 256 + 16))
    _, scales, plain = row.views(rows)
    scales.mul_(2)
    plain.zero_()
    assert row.unpack(rows)[:, 256:].eq(0).all() and scales.shape == (3, 2)
