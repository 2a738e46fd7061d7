"""Triton kernels of the experts: rows in blocks of one expert each, and the product of such blocks."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import triton
import triton.language as tl

CHUNK, COLUMNS = 1024, 64


@triton.jit
def count(
    ids, ends, cursor, total, SLOTS, FIRST, LOCAL,
    BINS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One program: where each expert's blocks begin; those of nobody here are the last."""
    counts = tl.zeros((BINS,), dtype=tl.int32)
    bins = tl.arange(0, BINS)
    for start in range(0, SLOTS, CHUNK):
        slot = start + tl.arange(0, CHUNK)
        local = tl.load(ids + slot, mask=slot < SLOTS, other=-1) - FIRST
        inside = (local >= 0) & (local < LOCAL)
        counts += tl.histogram(tl.where(inside, local, LOCAL), BINS)
    padding = tl.cdiv(SLOTS, CHUNK) * CHUNK - SLOTS
    counts -= tl.where(bins == LOCAL, padding, 0)
    padded = tl.cdiv(counts, BLOCK) * BLOCK
    last = tl.cumsum(padded, 0)
    tl.store(ends + bins, last)
    tl.store(cursor + bins, last - padded)
    tl.store(total, tl.max(last, 0))


@triton.jit
def name_blocks(ends, experts, rows, SLOTS, LOCAL, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """One program per block: its expert, -1 for nobody's, and rows that are nothing until they are placed."""
    block = tl.program_id(0)
    last = tl.load(ends + tl.arange(0, BINS))
    expert = tl.sum((last <= block * BLOCK).to(tl.int32), 0)
    tl.store(experts + block, tl.where(expert < LOCAL, expert, -1))
    tl.store(rows + block * BLOCK + tl.arange(0, BLOCK), tl.full((BLOCK,), SLOTS, dtype=tl.int32))


@triton.jit
def place(ids, cursor, rows, SLOTS, FIRST, LOCAL, CHUNK: tl.constexpr):
    slot = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = slot < SLOTS
    local = tl.load(ids + slot, mask=there, other=-1) - FIRST
    inside = (local >= 0) & (local < LOCAL)
    place = tl.atomic_add(cursor + tl.where(inside, local, LOCAL), 1, mask=there)
    tl.store(rows + place, slot, mask=there)


@triton.jit
def matmul(
    a, a_scales, b, b_scales, bias, scores, out, rows, experts, total, SLOTS, N, K, SHARED_BY,
    GROUPS, B_ROWS, GROUP_N,
    SCALES: tl.constexpr, BIASED: tl.constexpr, SCORED: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[slot] = a[slot // SHARED_BY] @ b[expert].T. SCALES: 0 none, 1 per row, 2 per row and BLOCK_K."""
    block = tl.program_id(1)
    if block * BLOCK_M >= tl.load(total):
        return
    slot = tl.load(rows + block * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    there = slot < SLOTS
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    columns = n < N
    place = out + slot[:, None] * N + n[None, :]
    mask = there[:, None] & columns[None, :]
    expert = tl.load(experts + block).to(tl.int64)
    if expert < 0:
        tl.store(place, tl.zeros((BLOCK_M, BLOCK_N), dtype=out.dtype.element_ty), mask=mask)
        return
    row = slot // SHARED_BY
    k = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    matrix = b + expert * N * K
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        inside = step * BLOCK_K + k < K
        at = (step * BLOCK_K + k).to(tl.int64)
        left = tl.load(a + row[:, None] * K + at[None, :], mask=there[:, None] & inside[None, :], other=0.0)
        right = tl.load(
            matrix + n.to(tl.int64)[None, :] * K + at[:, None],
            mask=inside[:, None] & columns[None, :],
            other=0.0,
        )
        part = tl.dot(left, right, input_precision=PRECISION)
        if SCALES == 2:
            row_scale = tl.load(a_scales + row * GROUPS + step, mask=there, other=0.0)
            scale = b_scales + (expert * B_ROWS + n // GROUP_N) * GROUPS + step
            part *= row_scale[:, None] * tl.load(scale, mask=columns, other=0.0)[None, :]
        sums += part
    if SCALES == 1:
        row_scale = tl.load(a_scales + row, mask=there, other=0.0)
        sums *= row_scale[:, None] * tl.load(b_scales + expert)
    if BIASED:
        sums += tl.load(bias + expert * N + n, mask=columns, other=0.0).to(tl.float32)[None, :]
    if SCORED:
        sums *= tl.load(scores + slot, mask=there, other=0.0)[:, None]
    tl.store(place, sums.to(out.dtype.element_ty), mask=mask)
