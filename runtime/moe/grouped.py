"""Products of rows grouped by expert, as ops without a result of their own: on meta tensors nothing runs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.layers.opaque import opaque_op


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """`rows` are slots (token x top k + choice) in the order of experts, in blocks of one expert each."""

    block: int
    rows: torch.Tensor
    experts: torch.Tensor
    total: torch.Tensor


def align(ids: torch.Tensor, first: int, local: int, block: int) -> Slots:
    """Room as SGLang takes it: each expert's last block may be empty but for one row."""
    count = ids.numel()
    padded = count * block if count < local + 1 else count + (local + 1) * (block - 1)
    bins = 1 << local.bit_length()
    rows, experts, total, ends, cursor = (
        torch.empty(size, dtype=torch.int32, device=ids.device)
        for size in (-(-padded // block) * block, -(-padded // block), 1, bins, bins)
    )
    align_(ids, first, local, block, rows, experts, total, ends, cursor)
    return Slots(block, rows, experts, total)


def grouped_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    slots: Slots,
    shared_by: int,
    scales: torch.Tensor | None,
    quant_block: list[int],
    bias: torch.Tensor | None,
    scores: torch.Tensor | None,
) -> None:
    """a [rows, K], b [experts, N, K] -> out [slots, N]: `shared_by` slots are of one row of a."""
    left, left_scales = a, None
    if scales is not None:
        groups = -(-a.shape[1] // quant_block[1]) if quant_block else 1
        left = torch.empty(a.shape, dtype=torch.float8_e4m3fn, device=a.device)
        left_scales = torch.empty(a.shape[0], groups, dtype=torch.float32, device=a.device)
        quantize_(a, left, left_scales)
    grouped_matmul_(
        left, left_scales, b, scales, out, slots.rows, slots.experts, slots.total, slots.block, shared_by,
        quant_block, bias, scores,
    )  # fmt: skip


@opaque_op("sgl_tune::align_", mutates_args=("rows", "experts", "total", "ends", "cursor"))
def align_(
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
    from runtime.moe import grouped_kernels

    grouped_kernels.align(ids, first, local, block, rows, experts, total, ends, cursor)


@opaque_op("sgl_tune::quantize_rows_", mutates_args=("out", "scales"))
def quantize_(x: torch.Tensor, out: torch.Tensor, scales: torch.Tensor) -> None:
    from runtime.layers import kernels

    kernels.quantize(x, out, scales, -(-x.shape[1] // scales.shape[1]))


@opaque_op("sgl_tune::grouped_matmul_", mutates_args=("out",))
def grouped_matmul_(
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
    from runtime.moe import grouped_kernels

    grouped_kernels.matmul(
        a, a_scales, b, b_scales, out, rows, experts, total, block, shared_by, quant_block, bias, scores
    )


@opaque_op("sgl_tune::sum_choices", mutates_args=("out",))
def sum_choices(x: torch.Tensor, out: torch.Tensor) -> None:
    """[tokens, top k, size] -> [tokens, size]."""
    from runtime.moe import grouped_kernels

    grouped_kernels.sum_choices(x, out)


@opaque_op("sgl_tune::swiglu", mutates_args=())
def swiglu(x: torch.Tensor, told: list[float]) -> torch.Tensor:
    """[T, 2 I], gates before ups -> (up + 1) * gate * sigmoid(alpha * gate), both clamped, of alpha and the
    limit; of a limit alone, silu(gate) * up, of which silu and up are clamped."""
    from runtime.moe import grouped_kernels

    return grouped_kernels.swiglu(x, told)


@swiglu.register_fake
def _(x: torch.Tensor, told: list[float]) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


def _nothing(*arguments: object) -> None:
    return None


for _op in (align_, quantize_, grouped_matmul_, sum_choices):
    _op.register_fake(_nothing)
