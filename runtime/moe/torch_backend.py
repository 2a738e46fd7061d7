"""The reference experts: any device, any weight format, one expert after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from runtime.moe.backends import MoEBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.simulate.kernel import kernel


class TorchBackend(MoEBackend):
    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        return torch_moe(x, topk, weights)


def _between(x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> Sequence[int]:
    """Of Triton's experts, for which this stands: one buffer for both products, and one between."""
    _, double, hidden = weights.w13.shape
    slots, itemsize = topk.ids.numel(), x.element_size()
    return [slots * max(double, hidden) * itemsize, slots * double // 2 * itemsize]


@kernel(lambda x, *_: torch.empty_like(x), _between)
def torch_moe(x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
    """One kernel, because rows per expert depend on the data, which meta tensors do not have."""
    w13_bias, w2_bias = weights.w13_bias, weights.w2_bias
    out = torch.zeros_like(x, dtype=torch.float32)
    for local in range(weights.local):
        token, slot = torch.where(topk.ids == weights.first + local)
        if token.numel() == 0:
            continue
        up, down = (matrix.to(x.dtype) for matrix in weights.matrices(local))
        hidden = F.linear(x[token], up, None if w13_bias is None else w13_bias[local])
        inner = activate(hidden, weights.swiglu, down.shape[1])
        result = F.linear(inner, down, None if w2_bias is None else w2_bias[local])
        out.index_add_(0, token, result.float() * topk.weights[token, slot, None])
    return out.to(x.dtype)


def activate(x: torch.Tensor, swiglu: tuple[float, ...], width: int) -> torch.Tensor:
    """To `width` values: of twice as many, half are gates."""
    if x.shape[-1] == width:
        return F.relu(x).square()
    gate, up = x.chunk(2, dim=-1)
    if not swiglu:
        return F.silu(gate) * up
    alpha, limit = swiglu
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)
