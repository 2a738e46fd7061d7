"""The default experts, as SGLang's Triton kernels run them: slots sorted by expert, two products, a sum.

Nothing here depends on data but what a kernel reads, so it can be captured; and every buffer is an allocation
of its own, in SGLang's order, so that a prediction sees what a GPU sees.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.layers.mlp import silu_and_mul
from runtime.moe.grouped import align, grouped_matmul, sum_choices, swiglu
from runtime.moe.torch_backend import TorchBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.errors import ConfigError

_SMALL, _LARGE = 16, 64


class TritonBackend(TorchBackend):
    """On a CPU, the reference."""

    def prepare(self, weights: ExpertWeights) -> ExpertWeights:
        if weights.w13.dtype == torch.uint8 and weights.w13.is_cuda:
            raise ConfigError(
                "--moe-runner-backend triton takes bf16 and fp8 experts: fp4 runs on flashinfer_trtllm"
            )
        return weights

    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        if x.is_cpu or not x.shape[0]:
            return super().forward(x, topk, weights)
        tokens, top_k = topk.ids.shape
        count, block = tokens * top_k, weights.block
        slots = align(topk.ids, weights.first, weights.local, _SMALL if tokens <= weights.local else _LARGE)
        # In place where nobody reads the rows after the experts.
        out = torch.empty_like(x) if self.moe.shared_intermediate_size else x
        up = x.new_empty(count, weights.w13.shape[1])
        grouped_matmul(x, weights.w13, up, slots, top_k, weights.w13_scale, block, weights.w13_bias, None)
        inner = _activate(up, weights)
        del up
        down = x.new_empty(tokens, top_k, x.shape[1])
        flat, scores = down.view(count, -1), topk.weights.reshape(-1)
        grouped_matmul(inner, weights.w2, flat, slots, 1, weights.w2_scale, block, weights.w2_bias, scores)
        del inner
        sum_choices(down, out)
        return out


def _activate(up: torch.Tensor, weights: ExpertWeights) -> torch.Tensor:
    if not weights.is_gated:
        return F.relu(up).square()
    return swiglu(up, *weights.swiglu) if weights.swiglu else silu_and_mul(up)
