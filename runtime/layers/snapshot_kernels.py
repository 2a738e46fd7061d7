"""Triton's kernel of residuals that are kept, in fp32: a program a token scores each, and adds them up."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _mixed(
    kept, last, scored, out, COUNT, kept_row, last_row, eps,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, ROWS)
    is_last, there = number == COUNT, number <= COUNT
    first = kept + token * kept_row + number * WIDTH
    square, product = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        h = start + tl.arange(0, BLOCK)
        inside = h < WIDTH
        weight = tl.load(scored + h, mask=inside, other=0.0)
        x = _rows(first, last + token * last_row, h, inside, number < COUNT, is_last)
        square += tl.sum(x * x, 1)
        product += tl.sum(x * weight[None, :], 1)
    scores = tl.where(there, product / tl.sqrt(square / WIDTH + eps), float("-inf"))
    shares = tl.exp(scores - tl.max(scores, 0))
    shares = shares / tl.sum(shares, 0)
    for start in range(0, WIDTH, BLOCK):
        h = start + tl.arange(0, BLOCK)
        inside = h < WIDTH
        x = _rows(first, last + token * last_row, h, inside, number < COUNT, is_last)
        total = tl.sum(shares[:, None] * x, 0)
        tl.store(out + token * WIDTH + h, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rows(first, last, h, inside, is_kept, is_last):
    """Those that are kept, and behind them the last."""
    mask = is_kept[:, None] & inside[None, :]
    kept = tl.load(first[:, None] + h[None, :], mask=mask, other=0.0).to(tl.float32)
    own = tl.load(last + h, mask=inside, other=0.0).to(tl.float32)
    return kept + tl.where(is_last[:, None], own[None, :], 0.0)


def mixed(
    kept: torch.Tensor, last: torch.Tensor, count: int, scored: torch.Tensor, eps: float
) -> torch.Tensor:
    tokens, width = last.shape
    out = last.new_empty(last.shape)
    if tokens:
        _mixed[(tokens,)](
            kept, last, scored, out, count, kept.stride(0), last.stride(0), eps,
            WIDTH=width, ROWS=triton.next_power_of_2(count + 1), BLOCK=512, num_warps=8,
        )  # fmt: skip
    return out
