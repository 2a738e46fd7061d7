"""Triton kernels of the experts: rows in blocks of one expert each, and the product of such blocks."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

_CHUNK, _COLUMNS = 1024, 64


@triton.jit
def _count(
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
def _name_blocks(ends, experts, rows, SLOTS, LOCAL, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """One program a block: its expert, -1 for nobody's, and rows that are nothing until they are placed."""
    block = tl.program_id(0)
    last = tl.load(ends + tl.arange(0, BINS))
    expert = tl.sum((last <= block * BLOCK).to(tl.int32), 0)
    tl.store(experts + block, tl.where(expert < LOCAL, expert, -1))
    tl.store(rows + block * BLOCK + tl.arange(0, BLOCK), tl.full((BLOCK,), SLOTS, dtype=tl.int32))


@triton.jit
def _place(ids, cursor, rows, SLOTS, FIRST, LOCAL, CHUNK: tl.constexpr):
    slot = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = slot < SLOTS
    local = tl.load(ids + slot, mask=there, other=-1) - FIRST
    inside = (local >= 0) & (local < LOCAL)
    place = tl.atomic_add(cursor + tl.where(inside, local, LOCAL), 1, mask=there)
    tl.store(rows + place, slot, mask=there)


@triton.jit
def _matmul(
    a, a_scales, b, b_scales, bias, scores, out, rows, experts, total, SLOTS, N, K, SHARED_BY,
    GROUPS, B_ROWS, GROUP_N,
    SCALES: tl.constexpr, BIASED: tl.constexpr, SCORED: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[slot] = a[slot // SHARED_BY] @ b[expert].T. SCALES: 0 none, 1 a row, 2 a BLOCK_K of k."""
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


@triton.jit
def _sum(x, out, SIZE, TOP_K, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < SIZE
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for slot in range(0, TOP_K):
        total += tl.load(x + (token * TOP_K + slot) * SIZE + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * SIZE + column, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _swiglu(x, out, SIZE, ALPHA, ADDED, LIMIT, CAPPED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < SIZE
    gate = tl.load(x + row * 2 * SIZE + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * SIZE + SIZE + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.minimum(tl.maximum(up, -LIMIT), LIMIT)
    if CAPPED:
        value = up * tl.minimum(gate / (1.0 + tl.exp(-gate)), LIMIT)
    else:
        gate = tl.minimum(gate, LIMIT)
        value = (up + ADDED) * gate / (1.0 + tl.exp(-ALPHA * gate))
    tl.store(out + row * SIZE + column, value.to(out.dtype.element_ty), mask=inside)


def align(
    ids: torch.Tensor,
    first: int,
    local: int,
    block: int,
    rows: torch.Tensor,
    experts: torch.Tensor,
    total: torch.Tensor,
    ends: torch.Tensor,
    cursor: torch.Tensor,
) -> None:
    slots, bins = ids.numel(), ends.numel()
    _count[(1,)](ids, ends, cursor, total, slots, first, local, BINS=bins, BLOCK=block, CHUNK=_CHUNK)
    _name_blocks[(experts.numel(),)](ends, experts, rows, slots, local, BINS=bins, BLOCK=block)
    _place[(triton.cdiv(slots, _CHUNK),)](ids, cursor, rows, slots, first, local, CHUNK=_CHUNK)


def matmul(
    a: torch.Tensor,
    a_scales: torch.Tensor | None,
    b: torch.Tensor,
    b_scales: torch.Tensor | None,
    out: torch.Tensor,
    rows: torch.Tensor,
    experts: torch.Tensor,
    total: torch.Tensor,
    block: int,
    shared_by: int,
    quant_block: list[int],
    bias: torch.Tensor | None,
    scores: torch.Tensor | None,
) -> None:
    (slots, _), (_, n, k) = out.shape, b.shape
    scales = 0 if b_scales is None else 2 if quant_block else 1
    a_groups = 1 if a_scales is None else a_scales.shape[1]
    b_rows = b_scales.shape[1] if b_scales is not None and quant_block else 1
    _matmul[(triton.cdiv(n, _COLUMNS), experts.numel())](
        a, a_scales, b, b_scales, bias, scores, out, rows, experts, total, slots, n, k, shared_by,
        a_groups, b_rows, quant_block[0] if quant_block else 1,
        SCALES=scales, BIASED=bias is not None, SCORED=scores is not None,
        PRECISION="ieee" if a.dtype == torch.float32 else "tf32",
        BLOCK_M=block, BLOCK_N=_COLUMNS, BLOCK_K=quant_block[1] if quant_block else 64, num_warps=4,
    )  # fmt: skip


def sum_choices(x: torch.Tensor, out: torch.Tensor) -> None:
    tokens, top_k, size = x.shape
    _sum[(tokens, triton.cdiv(size, _CHUNK))](x, out, size, top_k, BLOCK=_CHUNK)


def swiglu(x: torch.Tensor, told: list[float]) -> torch.Tensor:
    rows, size = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, size)
    *alpha, limit = told
    factor, added = alpha if len(alpha) == 2 else (*alpha, 1.0) if alpha else (0.0, 0.0)
    _swiglu[(rows, triton.cdiv(size, _CHUNK))](
        x, out, size, factor, added, limit, CAPPED=not alpha, BLOCK=_CHUNK
    )
    return out
