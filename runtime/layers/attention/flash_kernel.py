"""Paged flash attention in Triton: one kernel for decode and ragged prefill, grouped queries and latents."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def paged_flash(
    q,
    keys,
    rotary,
    values,
    scales,
    out,
    sinks,
    selected,
    by_distance,
    table,
    slot_map,
    requests,
    seq_lens,
    query_starts,
    scale,
    cap,
    growth_rate,
    q_token,
    q_head,
    key_slot,
    key_head,
    rotary_slot,
    rotary_head,
    value_slot,
    value_head,
    scale_slot,
    out_token,
    out_head,
    table_row,
    sink_token,
    distance_token,
    distance_head,
    MAPPED: tl.constexpr,
    SELECTED: tl.constexpr,
    SPAN: tl.constexpr,
    WINDOW: tl.constexpr,
    CHUNK: tl.constexpr,
    BOTH_WAYS: tl.constexpr,
    CAPPED: tl.constexpr,
    GROWTH: tl.constexpr,
    EXTENT: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    GROUP: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    ROTARY: tl.constexpr,
    QUANT: tl.constexpr,
    LATENT: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROTARY: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_M (query, head) rows of one request and kv head, over all the keys they see.

    Rows run over the heads of a query first, HEADS (>= GROUP) to a query; with SELECTED keys, SPAN to each
    of a kv head's `selected`, a block has one query. Softmax is in base 2, and `scale` and `cap` have
    log2(e) in them.
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

    if GROWTH:
        grown = tl.where(
            position > GROWTH, tl.log2(tl.maximum(position, 1).to(tl.float32)) * growth_rate, 1.0
        )
    if HAS_SINKS:
        own = (first_row + query) * sink_token + head
        top = tl.load(sinks + own, mask=live, other=0.0).to(tl.float32) * LOG2E
        total = tl.full((BLOCK_M,), 1.0, tl.float32)
    else:
        top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_DIM), tl.float32)

    begin = 0
    if SELECTED:
        end = SELECTED
        one = (first_row + tile * BLOCK_M // HEADS) * tl.num_programs(1) + kv_head
        selected += one * (SELECTED // SPAN)
    else:
        last = tl.minimum(queries - 1, (tile * BLOCK_M + BLOCK_M - 1) // HEADS)
        end = length - queries + last + 1
        if BOTH_WAYS:
            end = tl.minimum(length, end + WINDOW - 1) if WINDOW else length
        if WINDOW:
            oldest = length - queries + tile * BLOCK_M // HEADS - WINDOW + 1
            begin = tl.maximum(oldest, 0) // BLOCK_N * BLOCK_N
        if CHUNK:
            begin = (length - queries + tile * BLOCK_M // HEADS) // CHUNK * CHUNK // BLOCK_N * BLOCK_N

    for start in range(begin, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        if SELECTED:
            at = tl.load(selected + n // SPAN, mask=n < end, other=-1)
            if SPAN > 1:
                at = at * SPAN + n % SPAN
                at = tl.where((at >= 0) & (at < length), at, -1)
        else:
            at = tl.where(n < end, n, -1)
        slot = tl.load(table + at, mask=at >= 0, other=0).to(tl.int64)
        if MAPPED:
            slot = tl.load(slot_map + slot)
        k_mask = (at >= 0)[:, None] & (dim < DIM)[None, :]
        k = tl.load(
            keys + slot[:, None] * key_slot + kv_head * key_head + dim[None, :], mask=k_mask, other=0.0
        )
        if QUANT:
            s = tl.load(scales + slot[:, None] * scale_slot + (dim // QUANT)[None, :], mask=k_mask, other=0.0)
            k = k.to(tl.float32) * s
        k = k.to(q_main.dtype)
        scores = tl.dot(q_main, tl.trans(k), input_precision="ieee")
        if ROTARY:
            r_mask = (at >= 0)[:, None] & (turn < ROTARY)[None, :]
            r = tl.load(
                rotary + slot[:, None] * rotary_slot + kv_head * rotary_head + turn[None, :],
                mask=r_mask,
                other=0.0,
            )
            scores += tl.dot(q_rotary, tl.trans(r.to(q_main.dtype)), input_precision="ieee")
        seen = live[:, None] & (at >= 0)[None, :]
        if not BOTH_WAYS:
            seen &= at[None, :] <= position[:, None]
        if WINDOW:
            seen &= at[None, :] > position[:, None] - WINDOW
        if WINDOW and BOTH_WAYS:
            seen &= at[None, :] < position[:, None] + WINDOW
        if CHUNK:
            seen &= at[None, :] // CHUNK == position[:, None] // CHUNK
        scores *= scale
        if CAPPED:
            scores = cap * (2.0 * tl.sigmoid(2.0 * scores / cap) - 1.0)
        if GROWTH:
            scores *= grown[:, None]
        if EXTENT:
            behind = position[:, None] - at[None, :]
            given = (first_row + query) * distance_token + head * distance_head
            near = seen & (behind < EXTENT)
            added = tl.load(by_distance + given[:, None] + behind, mask=near, other=0.0)
            scores += added.to(tl.float32) * LOG2E
        scores = tl.where(seen, scores, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, 1))
        pivot = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - pivot[:, None])
        decay = tl.exp2(top - pivot)
        total = total * decay + tl.sum(weights, 1)
        if LATENT:
            v = k
        else:
            v = tl.load(
                values + slot[:, None] * value_slot + kv_head * value_head + dim[None, :],
                mask=k_mask,
                other=0.0,
            ).to(q_main.dtype)
        acc = acc * decay[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = new_top

    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    place = (first_row + query) * out_token + head * out_head
    tl.store(out + place[:, None] + dim[None, :], acc.to(out.dtype.element_ty), mask=q_mask)
