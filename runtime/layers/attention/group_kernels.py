"""Triton kernels of attention to groups of tokens: their keys, and who sees them behind a window."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from runtime.forward.kv_packing import FP8, FP8_MAX
from runtime.layers.attention.flash import tiles
from runtime.layers.attention.flash_kernel import LOG2E
from runtime.layers.attention.reference import Paging

_TOKENS = 8  # of a group at a time


@triton.jit
def _weighed(
    buffer, bias, table, first, token, column, seen, top, total, mean, buffer_slot, OFFSET: tl.constexpr,
    STATE: tl.constexpr,
):  # fmt: skip
    """Tokens of a group that starts at `first`, added to its running mean, channel by channel."""
    is_there = first + token >= 0
    seen = seen & is_there[:, None]
    slot = tl.load(table + first + token, mask=is_there, other=0).to(tl.int64)
    place = buffer + slot[:, None] * buffer_slot + OFFSET + column[None, :]
    keys = tl.load(place, mask=seen, other=0.0).to(tl.float32)
    gates = tl.load(place + STATE, mask=seen, other=0.0).to(tl.float32)
    gates += tl.load(bias + token[:, None] * STATE + OFFSET + column[None, :], mask=seen, other=0.0)
    gates = tl.where(seen, gates, float("-inf"))
    new_top = tl.maximum(top, tl.max(gates, 0))
    pivot = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights, decay = tl.exp(gates - pivot[None, :]), tl.exp(top - pivot)
    return new_top, total * decay + tl.sum(weights, 0), mean * decay + tl.sum(weights * keys, 0)


@triton.jit
def _group_keys(
    buffer, groups, bias, weight, rope, table, requests, seq_lens, query_starts, eps, buffer_slot,
    groups_slot, table_row, RATE: tl.constexpr, OVERLAPS: tl.constexpr, WIDTH: tl.constexpr,
    HALF: tl.constexpr, LIMIT: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a group that became whole. Columns end with the block: pairs are neighbours in it."""
    request = tl.program_id(1)
    queries = tl.load(query_starts + request + 1) - tl.load(query_starts + request)
    length = tl.load(seq_lens + request)
    number = ((length - queries) // RATE + tl.program_id(0)).to(tl.int32)
    if number >= length // RATE:
        return
    table += tl.load(requests + request) * table_row
    column = tl.arange(0, BLOCK) - (BLOCK - WIDTH)
    inside = column >= 0
    state: tl.constexpr = WIDTH * (1 + OVERLAPS)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, RATE, TOKENS):
        token = start + tl.arange(0, TOKENS)
        seen = (token < RATE)[:, None] & inside[None, :]
        top, total, mean = _weighed(
            buffer, bias, table, number * RATE, token, column, seen, top, total, mean, buffer_slot,
            OVERLAPS * WIDTH, state,
        )  # fmt: skip
        if OVERLAPS:
            top, total, mean = _weighed(
                buffer, bias, table, (number - 1) * RATE, token, column, seen, top, total, mean,
                buffer_slot, 0, state,
            )  # fmt: skip
    mean = tl.where(inside, mean / tl.where(total > 0, total, 1.0), 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(mean * mean, 0) / WIDTH + eps)
    mean = mean * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    first, second = tl.split(tl.reshape(mean, (BLOCK // 2, 2)))
    pair = tl.arange(0, BLOCK // 2) - (BLOCK // 2 - HALF)
    angles = rope + number.to(tl.int64) * RATE * 2 * HALF + pair
    cos = tl.load(angles, mask=pair >= 0, other=1.0)
    sin = tl.load(angles + HALF, mask=pair >= 0, other=0.0)
    turned = tl.reshape(tl.join(first * cos - second * sin, second * cos + first * sin), (BLOCK,))
    if LIMIT > 0:
        turned = tl.clamp(turned, -LIMIT, LIMIT)
    slot = tl.load(table + number * RATE + RATE - 1).to(tl.int64)
    tl.store(groups + slot * groups_slot + column, turned.to(groups.dtype.element_ty), mask=inside)


@triton.jit
def _folded(q, rows, row_slot, table, at, dim, scale, top, total, acc, DIM: tl.constexpr):
    """Those at positions `at`, -1 for none, added to the running answer of q [rows, DIM]."""
    seen = at >= 0
    slot = tl.load(table + at, mask=seen, other=0).to(tl.int64)
    mask = seen[:, None] & (dim < DIM)[None, :]
    k = tl.load(rows + slot[:, None] * row_slot + dim[None, :], mask=mask, other=0.0).to(q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    scores = tl.where(seen[None, :], scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    weights, decay = tl.exp2(scores - new_top[:, None]), tl.exp2(top - new_top)
    acc = acc * decay[:, None] + tl.dot(weights.to(k.dtype), k, input_precision="ieee")
    return new_top, total * decay + tl.sum(weights, 1), acc


@triton.jit
def _attend(
    q, keys, groups, chosen, sinks, out, table, requests, seq_lens, query_starts, scale, q_token, q_head,
    keys_slot, groups_slot, out_token, out_head, table_row, RATE: tl.constexpr, CHOSEN: tl.constexpr,
    WINDOW: tl.constexpr, HEADS: tl.constexpr, TILES: tl.constexpr, DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M heads of one query over its window and the groups that it sees. Softmax is in
    base 2, and `scale` has log2(e) in it."""
    query = tl.program_id(0) // TILES
    request = tl.program_id(1)
    first_row = tl.load(query_starts + request)
    queries = (tl.load(query_starts + request + 1) - first_row).to(tl.int32)
    if query >= queries:
        return
    position = tl.load(seq_lens + request).to(tl.int32) - queries + query
    table += tl.load(requests + request) * table_row
    row = first_row + query
    head = tl.program_id(0) % TILES * BLOCK_M + tl.arange(0, BLOCK_M)
    live = head < HEADS
    dim = tl.arange(0, BLOCK_DIM)
    mask = live[:, None] & (dim < DIM)[None, :]
    one = tl.load(q + row * q_token + head[:, None] * q_head + dim[None, :], mask=mask, other=0.0)
    top = tl.load(sinks + head, mask=live, other=0.0).to(tl.float32) * LOG2E
    total = tl.full((BLOCK_M,), 1.0, tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_DIM), tl.float32)

    for start in range(tl.maximum(position - WINDOW + 1, 0), position + 1, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = tl.where(n <= position, n, -1)
        top, total, acc = _folded(one, keys, keys_slot, table, at, dim, scale, top, total, acc, DIM)
    if RATE:
        end = (position + 1) // RATE
        if CHOSEN:
            chosen += row * CHOSEN
            end = CHOSEN
        for start in range(0, end, BLOCK_N):
            number = start + tl.arange(0, BLOCK_N)
            if CHOSEN:
                number = tl.load(chosen + number, mask=number < end, other=-1)
            else:
                number = tl.where(number < end, number, -1)
            at = tl.where(number >= 0, number * RATE + RATE - 1, -1)
            top, total, acc = _folded(one, groups, groups_slot, table, at, dim, scale, top, total, acc, DIM)

    place = out + row * out_token + head[:, None] * out_head + dim[None, :]
    tl.store(place, (acc / total[:, None]).to(out.dtype.element_ty), mask=mask)


def group_keys(
    buffer: torch.Tensor,
    groups: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    paging: Paging,
    rate: int,
    overlaps: bool,
) -> None:
    grid = (triton.cdiv(paging.max_query_len, rate), paging.requests.shape[0])
    if 0 in grid:
        return
    width = weight.shape[0]
    _group_keys[grid](
        buffer, groups, bias, weight, rope, paging.table, paging.requests, paging.seq_lens,
        paging.query_starts, eps, buffer.stride(0), groups.stride(0), paging.table.stride(0), RATE=rate,
        OVERLAPS=int(overlaps), WIDTH=width, HALF=rope.shape[1] // 2,
        LIMIT=FP8_MAX if groups.dtype is FP8 else 0.0, TOKENS=min(_TOKENS, triton.next_power_of_2(rate)),
        BLOCK=max(2, triton.next_power_of_2(width)),
    )  # fmt: skip


def attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    paging: Paging,
    rate: int,
    window: int,
    scale: float,
) -> torch.Tensor:
    """Zeroed where a ragged batch may hold rows that belong to no request."""
    heads, dim = q.shape[1:]
    every_row_has_a_request = q.shape[0] == paging.requests.shape[0] * paging.max_query_len
    out = torch.empty_like(q) if every_row_has_a_request else torch.zeros_like(q)
    tile = tiles(heads, q, latent=True)
    of_heads = triton.cdiv(heads, tile.rows)
    grid = (of_heads * paging.max_query_len, paging.requests.shape[0])
    if 0 in grid:
        return out
    behind = keys if groups is None else groups
    _attend[grid](
        q, keys, behind, behind if chosen is None else chosen, sinks, out, paging.table, paging.requests,
        paging.seq_lens, paging.query_starts, scale * LOG2E.value, *q.stride()[:2], keys.stride(0),
        behind.stride(0), *out.stride()[:2], paging.table.stride(0), RATE=0 if groups is None else rate,
        CHOSEN=0 if chosen is None else chosen.shape[1], WINDOW=window, HEADS=heads, TILES=of_heads, DIM=dim,
        BLOCK_DIM=max(16, triton.next_power_of_2(dim)), BLOCK_M=tile.rows, BLOCK_N=tile.keys,
        num_warps=tile.warps, num_stages=2,
    )  # fmt: skip
    return out
