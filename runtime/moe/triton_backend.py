"""The default experts, as SGLang's Triton kernels run them: slots sorted by expert, two products, a sum.

Nothing here depends on data but what a kernel reads, so it can be captured; and every buffer is an allocation
of its own, in SGLang's order, so that a prediction sees what a GPU sees.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.devices.graph_break import fused_in_a_server
from runtime.layers.mlp import gelu_and_mul, silu_and_mul, situ
from runtime.layers.norm import weighed_norm
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
        count = tokens * top_k
        block = list(weights.block)
        slots = align(topk.ids, weights.first, weights.local, _SMALL if tokens <= weights.local else _LARGE)
        out = x if self._is_in_place else torch.empty_like(x)
        up = x.new_empty(count, weights.w13.shape[1])
        scores, normed = topk.weights.reshape(-1), weights.answer_norm
        before, after = (scores, None) if self.weighs_input else (None, scores if normed is None else None)
        grouped_matmul(x, weights.w13, up, slots, top_k, weights.w13_scale, block, weights.w13_bias, before)
        inner = self._activate(up, weights)
        del up
        down = x.new_empty(tokens, top_k, x.shape[1])
        flat = down.view(count, -1)
        grouped_matmul(inner, weights.w2, flat, slots, 1, weights.w2_scale, block, weights.w2_bias, after)
        del inner
        if normed is not None:
            with fused_in_a_server():
                down.copy_(weighed_norm(down, *normed) * topk.weights[..., None].to(down.dtype))
        sum_choices(down, out)
        return out

    @property
    def _is_in_place(self) -> bool:
        """Where nobody reads the rows after the experts."""
        moe = self.model.moe
        return moe is not None and not moe.shared_intermediate_size and not moe.keeps_rows

    def _activate(self, up: torch.Tensor, weights: ExpertWeights) -> torch.Tensor:
        if not weights.is_gated:
            return F.relu(up).square()
        if weights.gelu:
            return gelu_and_mul(up, weights.gelu == "erf")
        if weights.situ is not None:
            return situ(up, *weights.situ)
        if not weights.swiglu:
            return silu_and_mul(up)
        return swiglu(up, weights.swiglu)
