"""Triton kernels of several residual streams: in fp32, with no buffer beside what they answer."""

# mypy: disallow-untyped-defs=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

_ROWS, _DEEP, _WIDE = 16, 64, 128


@triton.jit
def _parts(matrix, first, number, k, live, inside, WIDTH: tl.constexpr):
    """Rows `first + number` of the matrix, [K, numbers]."""
    place = matrix + (first + number)[None, :] * WIDTH + k[:, None]
    return tl.load(place, mask=live[None, :] & inside[:, None], other=0.0).to(tl.float32)


@triton.jit
def _collapse(
    streams, matrix, base, scale, row, post, mixed, tokens, eps, norm_eps, magnitude, least,
    STREAMS: tl.constexpr, WIDTH: tl.constexpr, STEPS: tl.constexpr, GIVES: tl.constexpr,
    MIXES: tl.constexpr, SIDE: tl.constexpr, ALL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_H: tl.constexpr,
):  # fmt: skip
    """One program BLOCK_M tokens: their streams' weights, and one row of them. With GIVES, what each is given
    of the answer, `least` and at most `magnitude` more; with MIXES, of the others."""
    whole: tl.constexpr = STREAMS * WIDTH
    token = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    live = token < tokens
    one = tl.arange(0, ALL)
    each = tl.arange(0, SIDE * SIDE)
    named = one < STREAMS
    source, target = each // SIDE, each % SIDE
    paired = (source < STREAMS) & (target < STREAMS)
    pair = source * STREAMS + target
    square = tl.zeros((BLOCK_M,), tl.float32)
    given = tl.zeros((BLOCK_M, ALL), tl.float32)
    taken = tl.zeros((BLOCK_M, ALL), tl.float32)
    passed = tl.zeros((BLOCK_M, SIDE * SIDE), tl.float32)
    for start in range(0, whole, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = k < whole
        x = tl.load(
            streams + token[:, None] * whole + k[None, :], mask=live[:, None] & inside[None, :], other=0.0
        ).to(tl.float32)
        square += tl.sum(x * x, 1)
        given = tl.dot(x, _parts(matrix, 0, one, k, named, inside, whole), given, input_precision="ieee")
        if GIVES:
            others = _parts(matrix, STREAMS, one, k, named, inside, whole)
            taken = tl.dot(x, others, taken, input_precision="ieee")
        if MIXES:
            pairs = _parts(matrix, 2 * STREAMS, pair, k, paired, inside, whole)
            passed = tl.dot(x, pairs, passed, input_precision="ieee")
    norm = (1.0 / tl.sqrt(square / whole + norm_eps))[:, None]
    weights = given * norm * tl.load(scale) + tl.load(base + one, mask=named, other=0.0)[None, :]
    weights = tl.sigmoid(weights) + eps
    if GIVES:
        out = live[:, None] & named[None, :]
        back = taken * norm * tl.load(scale + 1)
        back += tl.load(base + STREAMS + one, mask=named, other=0.0)[None, :]
        back = magnitude * tl.sigmoid(back) + least
        tl.store(post + token[:, None] * STREAMS + one[None, :], back, mask=out)
    if MIXES:
        told = passed * norm * tl.load(scale + 2)
        told += tl.load(base + 2 * STREAMS + pair, mask=paired, other=0.0)[None, :]
        told = tl.reshape(tl.where(paired[None, :], told, float("-inf")), (BLOCK_M, SIDE, SIDE))
        is_there = tl.reshape(paired, (1, SIDE, SIDE))
        most = tl.max(told, 2)
        told = tl.exp(told - tl.where(most == float("-inf"), 0.0, most)[:, :, None])
        sums = tl.sum(told, 2)
        told = tl.where(is_there, told / tl.where(sums > 0, sums, 1.0)[:, :, None] + eps, 0.0)
        for step in range(2 * STEPS - 1):  # columns, then rows and columns by turns
            if step % 2 == 0:
                told = told / tl.where(is_there, tl.sum(told, 1)[:, None, :] + eps, 1.0)
            else:
                told = told / tl.where(is_there, tl.sum(told, 2)[:, :, None] + eps, 1.0)
        place = mixed + token[:, None] * (STREAMS * STREAMS) + pair[None, :]
        flat = tl.reshape(told, (BLOCK_M, SIDE * SIDE))
        tl.store(place, flat, mask=live[:, None] & paired[None, :])
    for start in range(0, WIDTH, BLOCK_H):
        h = start + tl.arange(0, BLOCK_H)
        mask = live[:, None] & (h < WIDTH)[None, :]
        total = tl.zeros((BLOCK_M, BLOCK_H), tl.float32)
        for stream in tl.static_range(STREAMS):
            weight = tl.sum(tl.where(one[None, :] == stream, weights, 0.0), 1)
            x = tl.load(streams + token[:, None] * whole + stream * WIDTH + h[None, :], mask=mask, other=0.0)
            total += weight[:, None] * x.to(tl.float32)
        tl.store(row + token[:, None] * WIDTH + h[None, :], total.to(row.dtype.element_ty), mask=mask)


@triton.jit
def _spread(
    answer, streams, post, mixed, out, answer_row, WIDTH: tl.constexpr, STREAMS: tl.constexpr,
    MIXES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a token and BLOCK values of each of its streams."""
    token = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = h < WIDTH
    own = tl.load(answer + token * answer_row + h, mask=inside, other=0.0).to(tl.float32)
    first = token * STREAMS * WIDTH + h
    for target in tl.static_range(STREAMS):
        total = own * tl.load(post + token * STREAMS + target)
        if MIXES:
            for source in tl.static_range(STREAMS):
                weight = tl.load(mixed + (token * STREAMS + source) * STREAMS + target)
                kept = tl.load(streams + first + source * WIDTH, mask=inside, other=0.0)
                total += weight * kept.to(tl.float32)
        else:
            total += tl.load(streams + first + target * WIDTH, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + first + target * WIDTH, total.to(out.dtype.element_ty), mask=inside)


def collapse(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    steps: int,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens, count, width = streams.shape
    row = streams.new_empty(tokens, width)
    post = streams.new_empty(tokens, count, dtype=torch.float32)
    mixed = streams.new_empty(tokens, count, count, dtype=torch.float32)
    _launch(streams, matrix, base, scale, row, post, mixed, steps, eps, norm_eps, 2.0, 0.0)
    return row, post, mixed


def collapse_apart(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    magnitude: float,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, count, width = streams.shape
    row = streams.new_empty(tokens, width)
    post = streams.new_empty(tokens, count, dtype=torch.float32)
    _launch(streams, matrix, base, scale, row, post, None, 0, eps, norm_eps, magnitude, eps)
    return row, post


def gathered(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    norm_eps: float,
) -> torch.Tensor:
    row = streams.new_empty(streams.shape[0], streams.shape[2])
    _launch(streams, matrix, base, scale, row, None, None, 0, eps, norm_eps)
    return row


def _launch(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    row: torch.Tensor,
    post: torch.Tensor | None,
    mixed: torch.Tensor | None,
    steps: int,
    eps: float,
    norm_eps: float,
    magnitude: float = 0.0,
    least: float = 0.0,
) -> None:
    tokens, count, width = streams.shape
    assert streams.is_contiguous() and matrix.is_contiguous()
    side = max(4, triton.next_power_of_2(count))  # a product has 16 columns at least
    if tokens:
        _collapse[(triton.cdiv(tokens, _ROWS),)](
            streams, matrix, base, scale, row, row if post is None else post,
            row if mixed is None else mixed, tokens, eps, norm_eps, magnitude, least, STREAMS=count,
            WIDTH=width, STEPS=steps, GIVES=post is not None, MIXES=mixed is not None, SIDE=side,
            ALL=max(16, side), BLOCK_M=_ROWS, BLOCK_K=_DEEP, BLOCK_H=_WIDE,
        )  # fmt: skip


def spread(
    answer: torch.Tensor, streams: torch.Tensor, post: torch.Tensor, mixed: torch.Tensor | None
) -> torch.Tensor:
    tokens, count, width = streams.shape
    assert streams.is_contiguous() and answer.stride(-1) == 1
    out = torch.empty_like(streams)
    block = min(1024, triton.next_power_of_2(width))
    if tokens:
        _spread[(tokens, triton.cdiv(width, block))](
            answer, streams, post, post if mixed is None else mixed, out, answer.stride(0), WIDTH=width,
            STREAMS=count, MIXES=mixed is not None, BLOCK=block,
        )  # fmt: skip
    return out
