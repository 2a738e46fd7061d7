"""Triton kernels of the layers. Each writes its result and allocates nothing else, like a fused kernel."""

# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl
from torch import Tensor

from runtime.forward.kv_packing import FP8, FP8_MAX


@triton.jit
def _rms_norm(
    x, out, residual, weight, eps, x_row, x_head, out_row, out_head, residual_row,
    SIZE: tl.constexpr, ADD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row (and head). With ADD, it first adds x to residual, and normalizes the sum."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, BLOCK)
    inside = column < SIZE
    values = tl.load(x + row * x_row + head * x_head + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        place = residual + row * residual_row + column
        summed = values + tl.load(place, mask=inside, other=0.0).to(tl.float32)
        rounded = summed.to(residual.dtype.element_ty)
        tl.store(place, rounded, mask=inside)
        values = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / SIZE + eps)
    normalized = (values * scale).to(out.dtype.element_ty)
    normalized *= tl.load(weight + column, mask=inside, other=0.0)
    tl.store(out + row * out_row + head * out_head + column, normalized, mask=inside)


@triton.jit
def _rope(
    x, table, positions, x_token, x_head, HALF: tl.constexpr, INTERLEAVED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program per (token, head). Pairs are neighbours, or values that lie HALF a head apart."""
    token = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCK)
    inside = index < HALF
    angles = table + tl.load(positions + token) * (2 * HALF) + index
    cos = tl.load(angles, mask=inside, other=0.0)
    sin = tl.load(angles + HALF, mask=inside, other=0.0)
    first = x + token * x_token + tl.program_id(1) * x_head + index
    second = first + HALF
    if INTERLEAVED:
        first += index
        second = first + 1
    a = tl.load(first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(second, mask=inside, other=0.0).to(tl.float32)
    tl.store(first, (a * cos - b * sin).to(x.dtype.element_ty), mask=inside)
    tl.store(second, (b * cos + a * sin).to(x.dtype.element_ty), mask=inside)


@triton.jit
def _quantize(
    x, out, scales, x_row, SIZE, GROUPS, LIMIT: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One program per (row, group): fp8 values, and the fp32 scale by which the largest becomes LIMIT."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    within = tl.arange(0, BLOCK)
    column = group * GROUP + within
    inside = (within < GROUP) & (column < SIZE)
    values = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 0), 1e-10) / LIMIT
    tl.store(out + row * SIZE + column, (values / scale).to(out.dtype.element_ty), mask=inside)
    tl.store(scales + row * GROUPS + group, scale)


@triton.jit
def _block_matmul(
    a, a_scales, b, b_scales, out, M, N, K, A_GROUPS, B_GROUPS, GROUP_N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """out[m, n] = sum over k of a[m, k] b[n, k], both in fp8 with a scale for each BLOCK_K of k."""
    m = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    rows, columns = m < M, n < N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        inside = step * BLOCK_K + k < K
        a_mask = rows[:, None] & inside[None, :]
        b_mask = inside[:, None] & columns[None, :]
        left = tl.load(a + m[:, None] * K + (step * BLOCK_K + k)[None, :], mask=a_mask, other=0.0)
        right = tl.load(b + n[None, :] * K + (step * BLOCK_K + k)[:, None], mask=b_mask, other=0.0)
        left_scale = tl.load(a_scales + m * A_GROUPS + step, mask=rows, other=0.0)
        right_scale = tl.load(b_scales + n // GROUP_N * B_GROUPS + step, mask=columns, other=0.0)
        total += tl.dot(left, right) * left_scale[:, None] * right_scale[None, :]
    place = out + m[:, None] * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=rows[:, None] & columns[None, :])


def rms_norm(x: Tensor, out: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> None:
    """Write the RMS norm of x, or of residual += x, to out. Both are [rows, size] or [rows, heads, size],
    with the values of a head contiguous."""
    heads = x.shape[1] if x.dim() == 3 else 1
    size, beside = x.shape[-1], x if residual is None else residual
    if x.numel():
        _rms_norm[(x.shape[0], heads)](
            x, out, beside, weight, eps, x.stride(0), x.stride(-2), out.stride(0), out.stride(-2),
            beside.stride(0), SIZE=size, ADD=residual is not None, BLOCK=triton.next_power_of_2(size),
            num_warps=_warps(size),
        )  # fmt: skip


def rope(x: Tensor, table: Tensor, positions: Tensor, interleaved: bool) -> None:
    """Rotate the first `table.shape[1]` values of each head of x [tokens, heads, size], in place."""
    half = table.shape[1] // 2
    if x.numel():
        _rope[(x.shape[0], x.shape[1])](
            x, table, positions, x.stride(0), x.stride(1), HALF=half, INTERLEAVED=interleaved,
            BLOCK=triton.next_power_of_2(half), num_warps=1,
        )  # fmt: skip


def quantize(x: Tensor, out: Tensor, scales: Tensor, group: int) -> None:
    """Quantize to fp8 with one scale per `group` values of a row; scales are [rows, groups]."""
    rows, size = x.shape
    groups = scales.shape[1]
    _quantize[(rows, groups)](
        x, out, scales, x.stride(0), size, groups,
        LIMIT=FP8_MAX, GROUP=group, BLOCK=triton.next_power_of_2(group), num_warps=_warps(group),
    )  # fmt: skip


def fp8_block_linear(x: Tensor, weight: Tensor, scale_inv: Tensor, block: tuple[int, int]) -> Tensor:
    rows, size = x.shape
    out = x.new_empty(rows, weight.shape[0])
    if not rows:
        return out
    groups = triton.cdiv(size, block[1])
    quantized = torch.empty(x.shape, dtype=FP8, device=x.device)
    scales = torch.empty(rows, groups, dtype=torch.float32, device=x.device)
    quantize(x, quantized, scales, block[1])
    tile = 128 if rows > 64 else 16 if rows <= 16 else 64
    _block_matmul[(triton.cdiv(weight.shape[0], 128), triton.cdiv(rows, tile))](
        quantized, scales, weight, scale_inv, out, rows, weight.shape[0], size, groups, scale_inv.shape[1],
        block[0],
        BLOCK_M=tile, BLOCK_N=128, BLOCK_K=block[1], num_warps=8 if tile == 128 else 4,
    )  # fmt: skip
    return out


def _warps(size: int) -> int:
    return 8 if size >= 2048 else 4 if size >= 512 else 1
