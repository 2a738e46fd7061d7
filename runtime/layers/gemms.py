"""Products of quantized matrices that FlashInfer tunes: `fp8_gemm` (one scale per matrix, by cuBLAS) and
`fp4_gemm` (nvfp4, by the backend that --fp4-gemm-backend names)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from runtime.forward.kv_packing import FP8_MAX

TUNED = (9, 10, 12)  # Hopper, and both Blackwells
# SGLang's names for those of FlashInfer's backends whose weights are not shuffled.
BACKENDS = {"flashinfer_cutedsl": "cute-dsl", "flashinfer_cutlass": "cutlass", "flashinfer_cudnn": "cudnn"}
_ALIGNMENT = 32  # of rows and columns
_TILE_ROWS, _TILE_COLUMNS = 128, 4


def quantize_fp8(x: Tensor, scale: Tensor) -> Tensor:
    return (x.float() / scale).clamp_(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def fp8_gemm(
    quantized: Tensor, weight: Tensor, input_scale: Tensor, weight_scale: Tensor, dtype: torch.dtype
) -> Tensor:
    """Multiply [m, k] with [n, k] into [m, n]."""
    batch_of_one = quantized.unsqueeze(0), weight.t().unsqueeze(0)
    product = fp8_products(*batch_of_one, input_scale.reshape(1), weight_scale.reshape(1), dtype)
    return product.view(quantized.shape[0], weight.shape[0])


def fp8_products(
    quantized: Tensor, matrices: Tensor, input_scale: Tensor, scale: Tensor, dtype: torch.dtype
) -> Tensor:
    """Multiply [b, m, k] with [b, k, n], stored column by column, into [b, m, n]."""
    from flashinfer import bmm_fp8

    return bmm_fp8(quantized, matrices, input_scale, scale, dtype, backend="cublas")


def capability(x: Tensor) -> int:
    """Return the major compute capability of the GPU, or 0 without a GPU."""
    return torch.cuda.get_device_capability(x.device)[0] if x.is_cuda else 0


def fp4_gemm(
    x: Tensor, weight: Tensor, scale: Tensor, global_scale: Tensor, input_scale: Tensor, backend: str
) -> Tensor:
    """Multiply [m, k] with packed [n, k / 2] into [m, n]. FlashInfer reads the weight by columns, padded."""
    from flashinfer import fp4_quantize, mm_fp4

    rows, factor = weight.shape[0], global_scale.max() * input_scale.max()
    quantized, x_scale = fp4_quantize(x, input_scale.max().reciprocal())
    columns = -weight.shape[1] % (_ALIGNMENT // 2)
    product = mm_fp4(
        F.pad(quantized, (0, columns)),
        F.pad(weight, (0, columns, 0, -rows % _ALIGNMENT)).t(),
        x_scale,
        interleaved(scale).t(),
        factor,
        x.dtype,
        backend=BACKENDS[backend],
    )
    return product[:, :rows]


def interleaved(scale: Tensor) -> Tensor:
    """Reorder into tiles of 128 rows and 4 columns; inside a tile the order is 32 x 4 x 4."""
    rows, columns = scale.shape
    padded = F.pad(scale.view(torch.uint8), (0, -columns % _TILE_COLUMNS, 0, -rows % _TILE_ROWS))
    tiles = padded.view(padded.shape[0] // _TILE_ROWS, 4, 32, padded.shape[1] // _TILE_COLUMNS, 4)
    return tiles.permute(0, 3, 2, 1, 4).reshape(padded.shape).view(torch.float8_e4m3fn)
