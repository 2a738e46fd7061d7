"""Paged flash attention in Triton: one kernel for decode and ragged prefill, grouped queries and latents."""

# mypy: disallow-untyped-defs=False

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def paged_flash(
    q, keys, rotary, values, scales, out, sinks, selected, table, slot_map, requests, seq_lens, query_starts,
    scale, q_token, q_head, key_slot, key_head, rotary_slot, rotary_head, value_slot, value_head, scale_slot,
    out_token, out_head, table_row, MAPPED: tl.constexpr, SELECTED: tl.constexpr, WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr,
    ROTARY: tl.constexpr, QUANT: tl.constexpr, LATENT: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_ROTARY: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M (query, head) rows of one request and kv head, over all the keys they see.

    Rows run over the heads of a query first, with HEADS (>= GROUP) rows per query. With SELECTED keys, a
    block has one query. Softmax is in base 2, and `scale` includes log2(e).
    """
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    request = tl.program_id(2)
    first_row = tl.load(query_starts + request)
    queries = (tl.load(query_starts + request + 1) - first_row).to(tl.int32)
    if tile * BLOCK_M >= queries * HEADS:
        return
    length = tl.load(seq_lens + request).to(tl.int32)
    table += tl.load(requests + request) * table_row

    m = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    query = m // HEADS
    live = (query < queries) & (m % HEADS < GROUP)
    head = kv_head * GROUP + m % HEADS
    position = length - queries + query
    dim = tl.arange(0, BLOCK_DIM)
    row = (first_row + query) * q_token + head * q_head
    q_mask = live[:, None] & (dim < DIM)[None, :]
    q_main = tl.load(q + row[:, None] + dim[None, :], mask=q_mask, other=0.0)
    if ROTARY:
        turn = tl.arange(0, BLOCK_ROTARY)
        turn_mask = live[:, None] & (turn < ROTARY)[None, :]
        q_rotary = tl.load(q + row[:, None] + (DIM + turn)[None, :], mask=turn_mask, other=0.0)

    if HAS_SINKS:
        top = tl.load(sinks + head, mask=live, other=0.0).to(tl.float32) * LOG2E
        total = tl.full((BLOCK_M,), 1.0, tl.float32)
    else:
        top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_DIM), tl.float32)

    begin = 0
    if SELECTED:
        end = SELECTED
        selected += (first_row + tile * BLOCK_M // HEADS) * SELECTED
    else:
        last = tl.minimum(queries - 1, (tile * BLOCK_M + BLOCK_M - 1) // HEADS)
        end = length - queries + last + 1
        if WINDOW:
            oldest = length - queries + tile * BLOCK_M // HEADS - WINDOW + 1
            begin = tl.maximum(oldest, 0) // BLOCK_N * BLOCK_N

    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        if SELECTED:
            at = tl.load(selected + n, mask=n < end, other=-1)
        else:
            at = tl.where(n < end, n, -1)
        slot = tl.load(table + at, mask=at >= 0, other=0).to(tl.int64)
        if MAPPED:
            slot = tl.load(slot_map + slot)
        k_mask = (at >= 0)[:, None] & (dim < DIM)[None, :]
        k_place = keys + slot[:, None] * key_slot + kv_head * key_head + dim[None, :]
        k = tl.load(k_place, mask=k_mask, other=0.0)
        if QUANT:
            s = tl.load(scales + slot[:, None] * scale_slot + (dim // QUANT)[None, :], mask=k_mask, other=0.0)
            k = k.to(tl.float32) * s
        k = k.to(q_main.dtype)
        scores = tl.dot(q_main, tl.trans(k), input_precision="ieee")
        if ROTARY:
            r_mask = (at >= 0)[:, None] & (turn < ROTARY)[None, :]
            r_place = rotary + slot[:, None] * rotary_slot + kv_head * rotary_head + turn[None, :]
            r = tl.load(r_place, mask=r_mask, other=0.0)
            scores += tl.dot(q_rotary, tl.trans(r.to(q_main.dtype)), input_precision="ieee")
        seen = live[:, None] & (at >= 0)[None, :] & (at[None, :] <= position[:, None])
        if WINDOW:
            seen &= at[None, :] > position[:, None] - WINDOW
        scores = tl.where(seen, scores * scale, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, 1))
        pivot = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - pivot[:, None])
        decay = tl.exp2(top - pivot)
        total = total * decay + tl.sum(weights, 1)
        if LATENT:
            v = k
        else:
            v_place = values + slot[:, None] * value_slot + kv_head * value_head + dim[None, :]
            v = tl.load(v_place, mask=k_mask, other=0.0).to(q_main.dtype)
        acc = acc * decay[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = new_top

    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    place = (first_row + query) * out_token + head * out_head
    tl.store(out + place[:, None] + dim[None, :], acc.to(out.dtype.element_ty), mask=q_mask)
