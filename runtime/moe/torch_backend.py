"""The reference experts: any device, any weight format, one expert after the other."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.layers.opaque import opaque_op
from runtime.layers.scaled_linear import dequantize_blocks, dequantize_fp4
from runtime.moe.backends import MoEBackend
from runtime.moe.weights import ExpertWeights, TopK


class TorchBackend(MoEBackend):
    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        chosen, block = (topk.ids, topk.weights), list(weights.block)
        return torch_moe(x, *chosen, weights.stored, weights.first, block, list(weights.swiglu))


@opaque_op("sgl_tune::torch_moe", mutates_args=())
def torch_moe(
    x: torch.Tensor,
    ids: torch.Tensor,
    scores: torch.Tensor,
    stored: list[torch.Tensor | None],
    first: int,
    block: list[int],
    swiglu: list[float],
) -> torch.Tensor:
    """One opaque op, because rows per expert depend on the data, which meta tensors do not have."""
    w13, w2, w13_scale, w2_scale, w13_factor, w2_factor, w13_bias, w2_bias = stored
    assert w13 is not None and w2 is not None
    out = torch.zeros_like(x, dtype=torch.float32)
    for local in range(w13.shape[0]):
        token, slot = torch.where(ids == first + local)
        if token.numel() == 0:
            continue
        up = expert_matrix(w13, w13_scale, w13_factor, local, block).to(x.dtype)
        down = expert_matrix(w2, w2_scale, w2_factor, local, block).to(x.dtype)
        hidden = F.linear(x[token], up, None if w13_bias is None else w13_bias[local])
        inner = activate(hidden, swiglu, down.shape[1])
        result = F.linear(inner, down, None if w2_bias is None else w2_bias[local])
        out.index_add_(0, token, result.float() * scores[token, slot, None])
    return out.to(x.dtype)


torch_moe.register_fake(lambda x, *_: torch.empty_like(x))


def expert_matrix(
    weight: torch.Tensor,
    scale: torch.Tensor | None,
    global_scale: torch.Tensor | None,
    expert: int,
    block: list[int],
) -> torch.Tensor:
    if scale is None:
        return weight[expert]
    if weight.dtype == torch.uint8:
        factor = None if global_scale is None else global_scale[expert]
        return dequantize_fp4(weight[expert], scale[expert], factor)
    if block:
        return dequantize_blocks(weight[expert], scale[expert], block)
    return weight[expert].float() * scale[expert]


def activate(x: torch.Tensor, swiglu: list[float], width: int) -> torch.Tensor:
    """To `width` values: of twice as many, half are gates."""
    if x.shape[-1] == width:
        return F.relu(x).square()
    gate, up = x.chunk(2, dim=-1)
    if not swiglu:
        return F.silu(gate) * up
    alpha, limit = swiglu
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)
