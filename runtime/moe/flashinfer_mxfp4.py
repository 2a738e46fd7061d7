"""Experts in mxfp4 on FlashInfer's CUTLASS kernels of Hopper: four bits a weight, rows in bf16."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.moe.flashinfer_cutlass import FlashInferCutlassBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.errors import ConfigError

_TILE, _GROUP = 128, 32  # a kernel's, and the weights of a scale


class FlashInferMxfp4Backend(FlashInferCutlassBackend):
    """gpt-oss's, with biases. Their buckets reach as far as those of plain experts."""

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        up_scale, down_scale = weights.w13_scale, weights.w2_scale
        if weights.w13.is_meta:
            return weights  # of which sizes alone are known
        if weights.w13.dtype != torch.uint8 or up_scale is None or down_scale is None:
            raise ConfigError("--moe-runner-backend flashinfer_mxfp4 takes experts in mxfp4 here")
        inner = -(-weights.w13.shape[1] // 2 // _TILE) * _TILE
        # In the place of what was loaded, which a layer goes on holding: there may be no room for both.
        weights.w13.data = _interleaved(_ups_first(weights.w13.data, inner))
        weights.w2.data = _interleaved(_wider(weights.w2.data, inner // 2))
        up_scale.data = _folded(_ups_first(up_scale.data, inner))
        down_scale.data = _folded(_wider(down_scale.data, inner // _GROUP))
        if weights.w13_bias is not None:
            weights.w13_bias.data = _ups_first(weights.w13_bias.data[..., None], inner)[..., 0]
        return weights

    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        hidden = x.shape[-1]
        answer = super().forward_on_gpu(_wider(x, weights.w2.shape[1]), topk, weights)
        return answer[:, :hidden].contiguous()

    def _quant_scales(self, weights: ExpertWeights) -> list[torch.Tensor]:
        scales = weights.w13_scale, weights.w2_scale
        return [scale.view(torch.int32) for scale in scales if scale is not None]


def _ups_first(matrices: torch.Tensor, inner: int) -> torch.Tensor:
    """[experts, gates and ups, columns], each half made `inner` rows."""
    gates, ups = matrices.chunk(2, dim=1)
    return torch.cat([F.pad(half, (0, 0, 0, inner - half.shape[1])) for half in (ups, gates)], dim=1)


def _wider(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    return F.pad(tensor, (0, columns - tensor.shape[-1]))


def _interleaved(packed: torch.Tensor) -> torch.Tensor:
    from flashinfer.fused_moe import interleave_moe_weights_for_sm90_mixed_gemm

    return interleave_moe_weights_for_sm90_mixed_gemm(packed, "fp4")


def _folded(scales: torch.Tensor) -> torch.Tensor:
    from flashinfer.fused_moe import interleave_moe_scales_for_sm90_mixed_gemm

    return interleave_moe_scales_for_sm90_mixed_gemm(scales, group_size=_GROUP)
