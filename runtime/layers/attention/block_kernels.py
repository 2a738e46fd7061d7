"""The Triton kernel of an indexer that wants blocks of tokens: one number a block, by its best token."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from runtime.layers.attention.reference import Paging

TILE = 16  # of rows and of keys: as few as tl.dot takes, so that a decoded token's rows are few


@triton.jit
def _block_scores(
    q, keys, out, table, requests, seq_lens, query_starts, first, last, q_token, q_head, keys_slot,
    out_token, out_head, table_row, HEADS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
    LOCAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_DIM: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M (query, head) rows of a request and one block of its tokens, for batch rows first
    to last. Rows run over the heads of a query first."""
    block = tl.program_id(0)
    request = tl.program_id(2)
    first_row = tl.load(query_starts + request)
    queries = (tl.load(query_starts + request + 1) - first_row).to(tl.int32)
    length = tl.load(seq_lens + request).to(tl.int32)
    line = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    query, head = line // HEADS, line % HEADS
    row, position = first_row + query, length - queries + query
    live = (query < queries) & (row >= first) & (row < last)
    if (block * SIZE >= length) | (tl.max(live.to(tl.int32), 0) == 0):
        return
    dim = tl.arange(0, BLOCK_DIM)
    q_mask = live[:, None] & (dim < DIM)[None, :]
    asking = tl.load(q + (row * q_token + head * q_head)[:, None] + dim[None, :], mask=q_mask, other=0.0)
    slots = table + tl.load(requests + request) * table_row
    best = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    for start in range(0, SIZE, BLOCK_N):
        inside = start + tl.arange(0, BLOCK_N)
        at = block * SIZE + inside
        kept = (inside < SIZE) & (at < length)
        slot = tl.load(slots + at, mask=kept, other=0).to(tl.int64)
        k_mask = kept[:, None] & (dim < DIM)[None, :]
        k = tl.load(keys + slot[:, None] * keys_slot + dim[None, :], mask=k_mask, other=0.0)
        scores = tl.dot(asking, tl.trans(k.to(asking.dtype)), input_precision="ieee")
        seen = kept[None, :] & (at[None, :] <= position[:, None])
        best = tl.maximum(best, tl.max(tl.where(seen, scores, float("-inf")), 1))
    own = position // SIZE
    best = tl.where((block <= own) & (block > own - LOCAL), float("inf"), best)
    tl.store(out + (row - first) * out_token + head * out_head + block, best, mask=live)


def block_scores(
    q: torch.Tensor, keys: torch.Tensor, paging: Paging, out: torch.Tensor, first: int, size: int, local: int
) -> None:
    assert q.stride(-1) == 1 and out.stride(-1) == 1, "the kernel reads a head's values as one run"
    heads, dim = q.shape[1:]
    lines = triton.cdiv(paging.max_query_len * heads, TILE)
    grid = (out.shape[-1], lines, paging.requests.shape[0])
    if 0 in (*grid, out.shape[0]):
        return
    _block_scores[grid](
        q, keys, out, paging.table, paging.requests, paging.seq_lens, paging.query_starts, first,
        first + out.shape[0], *q.stride()[:2], keys.stride(0), *out.stride()[:2], paging.table.stride(0),
        HEADS=heads, DIM=dim, SIZE=size, LOCAL=local, BLOCK_M=TILE, BLOCK_N=_keys_at_a_time(size),
        BLOCK_DIM=max(16, triton.next_power_of_2(dim)),
    )  # fmt: skip


def _keys_at_a_time(size: int) -> int:
    return int(min(64, max(16, triton.next_power_of_2(size))))
