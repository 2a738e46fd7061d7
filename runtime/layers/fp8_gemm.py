"""The product of an fp8 matrix with one scale and an fp8 activation with one, as SGLang runs modelopt_fp8.

FlashInfer tunes it under the op `fp8_gemm`: the runner is cuBLAS's, the tactics are its algorithms.
"""

from __future__ import annotations

import torch

from runtime.forward.kv_packing import FP8_MAX

TUNED = (9, 10, 12)  # Hopper, and both Blackwells


def quantize_fp8(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x.float() / scale).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def fp8_gemm(
    quantized: torch.Tensor,
    weight: torch.Tensor,
    input_scale: torch.Tensor,
    weight_scale: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[m, k] and [n, k] -> [m, n]."""
    batch_of_one = quantized.unsqueeze(0), weight.t().unsqueeze(0)
    product = fp8_products(*batch_of_one, input_scale.reshape(1), weight_scale.reshape(1), dtype)
    return product.view(quantized.shape[0], weight.shape[0])


def fp8_products(
    quantized: torch.Tensor,
    matrices: torch.Tensor,
    input_scale: torch.Tensor,
    scale: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[b, m, k] and [b, k, n], the columns of which lie apart -> [b, m, n]."""
    from flashinfer import bmm_fp8

    return bmm_fp8(quantized, matrices, input_scale, scale, dtype, backend="cublas")


def capability(x: torch.Tensor) -> int:
    """The major of the GPU's; 0 where there is none."""
    return torch.cuda.get_device_capability(x.device)[0] if x.is_cuda else 0
