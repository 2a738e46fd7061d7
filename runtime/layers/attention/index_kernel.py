"""The Triton kernel that scores keys for sparse attention, plain or packed."""

# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.forward.kv_packing import PackedRow
from runtime.layers.attention.reference import Paging


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


def index_scores(
    q: Tensor, keys: Tensor, head_weights: Tensor, paging: Paging, out: Tensor, first: int
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
