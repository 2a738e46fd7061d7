"""Runs experts that FlashInfer does not tune: any device, any weight format, one expert after the other."""

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
    """Return the buffers of Triton's kernels, which this replaces: one for both products, one between."""
    _, double, hidden = weights.w13.shape
    slots, itemsize = topk.ids.numel(), x.element_size()
    return [slots * max(double, hidden) * itemsize, slots * double // 2 * itemsize]


@kernel(lambda x, *_: torch.empty_like(x), _between, launches=5)
def torch_moe(x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
    w13_bias, w2_bias = weights.w13_bias, weights.w2_bias
    out = torch.zeros_like(x, dtype=torch.float32)
    for local in range(weights.local):
        score = topk.weights.where(topk.ids == weights.first + local, 0.0).sum(dim=-1, keepdim=True)
        # On a GPU all rows are computed, because a graph cannot wait to learn which are this expert's.
        rows = score.nonzero()[:, 0] if x.is_cpu else slice(None)
        up, down = (matrix.to(x.dtype) for matrix in weights.matrices(local))
        hidden = F.linear(x[rows], up, None if w13_bias is None else w13_bias[local])
        inner = activate(hidden, weights.swiglu, down.shape[1])
        result = F.linear(inner, down, None if w2_bias is None else w2_bias[local])
        out[rows] += result.float() * score[rows]
    return out.to(x.dtype)


def activate(x: torch.Tensor, swiglu: tuple[float, ...], width: int) -> torch.Tensor:
    """Return `width` values per row. If `x` has twice as many, the first half are gates."""
    if x.shape[-1] == width:
        return F.relu(x).square()
    gate, up = x.chunk(2, dim=-1)
    if not swiglu:
        return F.silu(gate) * up
    alpha, limit = swiglu
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)
