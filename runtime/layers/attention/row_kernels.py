"""Triton kernels that write rows into the pool, plain or packed, and score them for sparse attention."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from runtime.forward.kv_packing import FP8, FP8_MAX, PackedRow
from runtime.layers.attention.reference import Paging


@triton.jit
def _store_plain(
    rows, buffer, slots, slot_map, rows_token, rows_head, buffer_slot, MAPPED: tl.constexpr,
    LIMIT: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per token: WIDTH values, DIM to a head."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    source = rows + token * rows_token + column // DIM * rows_head + column % DIM
    values = tl.load(source, mask=inside)
    if LIMIT > 0:
        values = tl.clamp(values.to(tl.float32), -LIMIT, LIMIT)
    slot = tl.load(slots + token)
    if MAPPED:
        slot = tl.load(slot_map + slot)
    tl.store(buffer + slot * buffer_slot + column, values.to(buffer.dtype.element_ty), mask=inside)


@triton.jit
def _store_packed(
    rows, quantized, scales, plain, slots, rows_token, quantized_slot, scales_slot, plain_slot,
    LIMIT: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, PLAIN: tl.constexpr,
    ALL_BLOCKS: tl.constexpr, ALL_BLOCK: tl.constexpr, ALL_PLAIN: tl.constexpr,
):  # fmt: skip
    """One program per token: BLOCKS x BLOCK values in fp8 with one scale per block, then PLAIN values."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    block = tl.arange(0, ALL_BLOCKS)
    column = tl.arange(0, ALL_BLOCK)
    place = block[:, None] * BLOCK + column[None, :]
    inside = (block < BLOCKS)[:, None] & (column < BLOCK)[None, :]
    values = tl.load(rows + token * rows_token + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(values), 1), 1e-4), LIMIT)
    small = tl.div_rn(values, scale[:, None]).to(quantized.dtype.element_ty)
    tl.store(quantized + slot * quantized_slot + place, small, mask=inside)
    tl.store(scales + slot * scales_slot + block, scale, mask=block < BLOCKS)
    if PLAIN:
        rest = tl.arange(0, ALL_PLAIN)
        values = tl.load(rows + token * rows_token + BLOCKS * BLOCK + rest, mask=rest < PLAIN)
        tl.store(plain + slot * plain_slot + rest, values.to(tl.bfloat16), mask=rest < PLAIN)


@triton.jit
def _index_scores(
    q, keys, scales, head_weights, out, table, requests, seq_lens, query_starts, first, last, q_token, q_head,
    keys_slot, scales_slot, weights_token, out_token, table_row,
    HEADS: tl.constexpr, DIM: tl.constexpr, PACKED: tl.constexpr, ALL_HEADS: tl.constexpr,
    ALL_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q queries of a request against BLOCK_N of its keys, for batch rows first to last."""
    request = tl.program_id(2)
    first_row = tl.load(query_starts + request)
    queries = (tl.load(query_starts + request + 1) - first_row).to(tl.int32)
    length = tl.load(seq_lens + request).to(tl.int32)
    own_first = first_row + tl.program_id(1) * BLOCK_Q
    if (own_first >= last) | (own_first + BLOCK_Q <= first):
        return
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    head = tl.arange(0, ALL_HEADS)
    dim = tl.arange(0, ALL_DIM)
    inside = n < length
    slot = tl.load(table + tl.load(requests + request) * table_row + n, mask=inside, other=0).to(tl.int64)
    k_mask = inside[:, None] & (dim < DIM)[None, :]
    k = tl.load(keys + slot[:, None] * keys_slot + dim[None, :], mask=k_mask, other=0.0)
    if PACKED:
        k = k.to(tl.float32) * tl.load(scales + slot * scales_slot, mask=inside, other=0.0)[:, None]
    k = tl.trans(k.to(q.dtype.element_ty))
    for i in range(BLOCK_Q):
        query = tl.program_id(1) * BLOCK_Q + i
        position = length - queries + query
        row = first_row + query
        live = (query < queries) & (row >= first) & (row < last)
        heads, newest = tl.where(live, HEADS, 0), tl.where(live, position, -1)
        q_mask = (head < heads)[:, None] & (dim < DIM)[None, :]
        one = tl.load(q + row * q_token + head[:, None] * q_head + dim[None, :], mask=q_mask, other=0.0)
        weight = tl.load(head_weights + row * weights_token + head, mask=head < heads, other=0.0)
        each_head = tl.maximum(tl.dot(one, k, input_precision="ieee"), 0.0)
        score = tl.sum(each_head * weight.to(tl.float32)[:, None], 0)
        tl.store(out + (row - first) * out_token + n, score, mask=inside & (n <= newest))


def store(
    buffer: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor, plain: int, slot_map: torch.Tensor | None
) -> None:
    assert rows.stride(-1) == 1, "the kernel reads a row's values as one run"
    grid = (rows.shape[0],)
    if 0 in grid:
        return
    if buffer.dtype is torch.uint8:
        row = PackedRow(rows.shape[-1] - plain, plain)
        quantized, scales, rest = row.views(buffer)
        _store_packed[grid](
            rows, quantized, scales, rest, slots, rows.stride(0), quantized.stride(0), scales.stride(0),
            rest.stride(0), LIMIT=FP8_MAX, BLOCKS=row.blocks, BLOCK=row.block, PLAIN=row.plain,
            ALL_BLOCKS=triton.next_power_of_2(row.blocks), ALL_BLOCK=triton.next_power_of_2(row.block),
            ALL_PLAIN=triton.next_power_of_2(max(1, row.plain)),
        )  # fmt: skip
        return
    width = math.prod(rows.shape[1:])
    _store_plain[grid](
        rows, buffer, slots, slots if slot_map is None else slot_map, rows.stride(0), rows.stride(-2),
        buffer.stride(0), MAPPED=slot_map is not None, LIMIT=FP8_MAX if buffer.dtype is FP8 else 0.0,
        DIM=rows.shape[-1], WIDTH=width, BLOCK=triton.next_power_of_2(width),
    )  # fmt: skip


def index_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    paging: Paging,
    out: torch.Tensor,
    first: int,
) -> None:
    heads, dim = q.shape[1:]
    packed = keys.dtype is torch.uint8
    values, scales, _ = PackedRow(dim).views(keys) if packed else (keys, keys, keys)
    block_q, block_n = 8, 64
    query_blocks = triton.cdiv(paging.max_query_len, block_q)
    grid = (triton.cdiv(out.shape[1], block_n), query_blocks, paging.requests.shape[0])
    if 0 in grid:
        return
    _index_scores[grid](
        q, values, scales, head_weights, out, paging.table, paging.requests, paging.seq_lens,
        paging.query_starts, first, first + out.shape[0], *q.stride()[:2], values.stride(0), scales.stride(0),
        head_weights.stride(0), out.stride(0), paging.table.stride(0), HEADS=heads, DIM=dim, PACKED=packed,
        ALL_HEADS=max(16, triton.next_power_of_2(heads)), ALL_DIM=max(16, triton.next_power_of_2(dim)),
        BLOCK_Q=block_q, BLOCK_N=block_n,
    )  # fmt: skip
