"""Products of rows grouped by expert, as kernels without a result of their own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.simulate.kernel import in_place, kernel


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """`rows` are slots (token x top k + choice) in the order of experts, in blocks of one expert each."""

    block: int
    rows: torch.Tensor
    experts: torch.Tensor
    total: torch.Tensor


def align(ids: torch.Tensor, first: int, local: int, block: int) -> Slots:
    """Each expert's last block may be empty but for one row."""
    count = ids.numel()
    padded = count * block if count < local + 1 else count + (local + 1) * (block - 1)
    bins = 1 << local.bit_length()
    rows, experts, total, ends, cursor = (
        torch.empty(size, dtype=torch.int32, device=ids.device)
        for size in (-(-padded // block) * block, -(-padded // block), 1, bins, bins)
    )
    slots = Slots(block, rows, experts, total)
    _align(ids, first, local, slots, ends, cursor)
    return slots


def grouped_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    slots: Slots,
    shared_by: int,
    scales: torch.Tensor | None,
    quant_block: tuple[int, ...],
    bias: torch.Tensor | None,
    scores: torch.Tensor | None,
) -> None:
    """a [rows, K], b [experts, N, K] -> out [slots, N]: `shared_by` slots are of one row of a."""
    left, left_scales = a, None
    if scales is not None:
        groups = -(-a.shape[1] // quant_block[1]) if quant_block else 1
        left = torch.empty(a.shape, dtype=torch.float8_e4m3fn, device=a.device)
        left_scales = torch.empty(a.shape[0], groups, dtype=torch.float32, device=a.device)
        _quantize(a, left, left_scales)
    _matmul(left, left_scales, b, scales, out, slots, shared_by, quant_block, bias, scores)


@kernel(in_place)
def _align(
    ids: torch.Tensor, first: int, local: int, to: Slots, ends: torch.Tensor, cursor: torch.Tensor
) -> None:
    from runtime.moe import grouped_kernels as kernels

    slots, bins, chunk, block = ids.numel(), ends.numel(), kernels.CHUNK, to.block
    kernels.count[(1,)](ids, ends, cursor, to.total, slots, first, local, BINS=bins, BLOCK=block, CHUNK=chunk)
    kernels.name_blocks[(to.experts.numel(),)](
        ends, to.experts, to.rows, slots, local, BINS=bins, BLOCK=block
    )
    kernels.place[(-(-slots // chunk),)](ids, cursor, to.rows, slots, first, local, CHUNK=chunk)


@kernel(in_place)
def _quantize(x: torch.Tensor, out: torch.Tensor, scales: torch.Tensor) -> None:
    from runtime.layers import kernels

    kernels.quantize(x, out, scales, -(-x.shape[1] // scales.shape[1]))


@kernel(in_place)
def _matmul(
    a: torch.Tensor,
    a_scales: torch.Tensor | None,
    b: torch.Tensor,
    b_scales: torch.Tensor | None,
    out: torch.Tensor,
    to: Slots,
    shared_by: int,
    quant_block: tuple[int, ...],
    bias: torch.Tensor | None,
    scores: torch.Tensor | None,
) -> None:
    from runtime.moe import grouped_kernels as kernels

    (slots, _), (_, n, k) = out.shape, b.shape
    scales = 0 if b_scales is None else 2 if quant_block else 1
    a_groups = 1 if a_scales is None else a_scales.shape[1]
    b_rows = b_scales.shape[1] if b_scales is not None and quant_block else 1
    kernels.matmul[(-(-n // kernels.COLUMNS), to.experts.numel())](
        a, a_scales, b, b_scales, bias, scores, out, to.rows, to.experts, to.total, slots, n, k, shared_by,
        a_groups, b_rows, quant_block[0] if quant_block else 1,
        SCALES=scales, BIASED=bias is not None, SCORED=scores is not None,
        PRECISION="ieee" if a.dtype == torch.float32 else "tf32",
        BLOCK_M=to.block, BLOCK_N=kernels.COLUMNS, BLOCK_K=quant_block[1] if quant_block else 64, num_warps=4,
    )  # fmt: skip


@kernel(in_place)
def sum_choices(x: torch.Tensor, out: torch.Tensor) -> None:
    """[tokens, top k, size] -> [tokens, size]."""
    torch.sum(x, dim=1, out=out)


@kernel(lambda x, *_: x.new_empty(x.shape[0], x.shape[1] // 2))
def swiglu(x: torch.Tensor, alpha: float, limit: float) -> torch.Tensor:
    """[T, 2 I], gates before ups -> (up + 1) * gate * sigmoid(alpha * gate), both clamped to the limit, which
    `x` is meanwhile, too."""
    gate, up = x.chunk(2, dim=-1)
    gate.clamp_(max=limit)
    up.clamp_(-limit, limit).add_(1)
    return (gate * alpha).sigmoid_().mul_(gate).mul_(up)
