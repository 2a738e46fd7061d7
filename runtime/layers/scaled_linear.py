"""Matrix products over quantised weights, each one kernel that declares its temporary memory.

The reference (CPU) multiplies with the dequantised weight and leaves the activation as it is.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.forward.kv_packing import FP8_MAX
from runtime.layers.gemms import BACKENDS, TUNED, capability, fp4_gemm, fp8_gemm, fp8_products, quantize_fp8
from runtime.simulate.kernel import kernel


def _rows(x: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _products(rows: Tensor, matrices: Tensor, scale: Tensor) -> Tensor:
    return rows.new_empty(*rows.shape[:2], matrices.shape[2])


def _in_blocks(x: Tensor, *rest: Any) -> Sequence[int]:
    """Return the temporaries: the activation in fp8, and its scales."""
    rows, size = x.shape
    return [rows * size, rows * -(-size // rest[-1][1]) * 4]


_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@kernel(_rows, _in_blocks)
def fp8_block_linear(
    x: Tensor, weight: Tensor, scale_inv: Tensor, bias: Tensor | None, block: tuple[int, int]
) -> Tensor:
    if x.is_cuda:
        from runtime.layers import kernels

        out = kernels.fp8_block_linear(x, weight, scale_inv, block)
        return out if bias is None else out.add_(bias)
    return F.linear(x, dequantize_blocks(weight, scale_inv, block).to(x.dtype), bias)


@kernel(_rows, lambda x, *_: [x.numel() * 4, x.numel()])  # the activation scaled in fp32, then in fp8
def fp8_tensor_linear(
    x: Tensor, weight: Tensor, weight_scale: Tensor, input_scale: Tensor | None, bias: Tensor | None
) -> Tensor:
    if x.is_cuda:
        input_scale = _own_scale(x) if input_scale is None else input_scale
        quantized = quantize_fp8(x, input_scale)
        if capability(x) in TUNED:
            out = fp8_gemm(quantized, weight, input_scale, weight_scale, x.dtype)
        else:
            out = torch._scaled_mm(quantized, weight.t(), input_scale, weight_scale, out_dtype=x.dtype)
        return out if bias is None else out.add_(bias)
    return F.linear(x, (weight.float() * weight_scale).to(x.dtype), bias)


@kernel(_products, lambda rows, *_: [rows.numel()])  # the activation in fp8
def fp8_head_products(rows: Tensor, matrices: Tensor, scale: Tensor) -> Tensor:
    """Multiply the rows of each head with its matrix; all matrices share one scale."""
    if capability(rows) in TUNED:
        input_scale, rows = _own_scale(rows), rows.contiguous()
        return fp8_products(quantize_fp8(rows, input_scale), matrices, input_scale, scale, rows.dtype)
    return torch.bmm(rows, (matrices.float() * scale).to(rows.dtype))


@kernel(_rows, lambda x, *_: [x.numel() // 2, x.numel() // 16])  # the activation in fp4, and its scales
def fp4_linear(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    global_scale: Tensor | None,
    input_scale: Tensor | None,
    bias: Tensor | None,
    backend: str,
) -> Tensor:
    by_flashinfer = backend in BACKENDS and capability(x) >= 10
    if by_flashinfer and global_scale is not None and input_scale is not None:
        out = fp4_gemm(x, weight, scale, global_scale, input_scale, backend)
        return out if bias is None else out.add_(bias)
    return F.linear(x, dequantize_fp4(weight, scale, global_scale).to(x.dtype), bias)


def _own_scale(x: Tensor) -> Tensor:
    return (x.abs().amax().float() / FP8_MAX).clamp_(min=1e-12).reshape(1)


def dequantize_blocks(weight: Tensor, scale_inv: Tensor, block: Sequence[int]) -> Tensor:
    """Return fp32 [n, k] from e4m3 [n, k] and one scale per block."""
    scale = scale_inv.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return weight.float() * scale[: weight.shape[0], : weight.shape[1]]


def dequantize_fp4(packed: Tensor, scale: Tensor, global_scale: Tensor | None) -> Tensor:
    """Return fp32 [n, k] from bytes [n, k / 2], low nibble first, and one scale per group."""
    magnitudes = torch.tensor(_E2M1, device=packed.device)
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2).long()
    values = magnitudes[codes & 7] * (1.0 - 2.0 * (codes >> 3))
    factors = torch.exp2(scale.float() - 127) if scale.dtype == torch.uint8 else scale.float()
    group = values.shape[-1] // factors.shape[-1]
    values = values * factors.repeat_interleave(group, -1)
    return values if global_scale is None else values * global_scale
