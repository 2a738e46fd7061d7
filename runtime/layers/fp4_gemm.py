"""The product of an nvfp4 matrix and an activation quantised on the way, as SGLang runs modelopt_fp4.

FlashInfer tunes it under the op `fp4_gemm`, by the backend that --fp4-gemm-backend names.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

# SGLang's names for FlashInfer's backends, of those whose weights are not shuffled.
BACKENDS = {
    "flashinfer_cutedsl": "cute-dsl",
    "flashinfer_cutlass": "cutlass",
    "flashinfer_cudnn": "cudnn",
}
_ALIGNMENT = 32  # of rows and columns
_TILE_ROWS, _TILE_COLUMNS = 128, 4


def fp4_gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    global_scale: torch.Tensor,
    input_scale: torch.Tensor,
    backend: str,
) -> torch.Tensor:
    """[m, k] and packed [n, k / 2] -> [m, n]. FlashInfer takes the weight by columns, padded."""
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


def interleaved(scale: torch.Tensor) -> torch.Tensor:
    """Tiles of 128 rows and 4 columns, each of them 32 x 4 x 4, one after the other."""
    rows, columns = scale.shape
    padded = F.pad(scale.view(torch.uint8), (0, -columns % _TILE_COLUMNS, 0, -rows % _TILE_ROWS))
    tiles = padded.view(padded.shape[0] // _TILE_ROWS, 4, 32, padded.shape[1] // _TILE_COLUMNS, 4)
    return tiles.permute(0, 3, 2, 1, 4).reshape(padded.shape).view(torch.float8_e4m3fn)
