"""The base of every backend that FlashInfer tunes: the tuning range, and kernels for a CPU."""

from abc import abstractmethod
from typing import ClassVar

import torch

from runtime.moe.backends import MoEBackend
from runtime.moe.torch_backend import activate
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.backends import backend_row
from runtime.server.buckets import tuning_range
from runtime.simulate.kernel import kernel


class TunedBackend(MoEBackend):
    """Runs the kernel called `name` on a GPU (and on meta), and grouped GEMMs on a CPU, tuned alike."""

    name: ClassVar[str]

    def prepare(self, weights: ExpertWeights) -> ExpertWeights:
        return _dequantized(weights) if weights.w13.is_cpu else self.prepare_for_gpu(weights)

    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        if not x.is_cpu:
            return self.forward_on_gpu(x, topk, weights)
        return cpu_moe(x, topk, weights, self.tune_max(x.shape[0]))

    def tune_max(self, rows: int) -> int:
        """Return the largest bucket that SGLang passes in a call with these rows."""
        runtime = self.runtime
        prefill = runtime.prefill_tokens * len(self.layout.group("attn_dp"))
        return tuning_range(backend_row(self.name), rows, prefill)

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        return weights

    @abstractmethod
    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor: ...


@kernel(lambda x, *_: torch.empty_like(x))
def cpu_moe(x: torch.Tensor, topk: TopK, weights: ExpertWeights, tune_max: int) -> torch.Tensor:
    """Compute the experts on a CPU as one op, because its temporaries depend on the tactics found."""
    from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm

    w2, w13_bias, w2_bias = weights.w2, weights.w13_bias, weights.w2_bias
    local = topk.ids.long() - weights.first
    local = torch.where((local >= 0) & (local < weights.local), local, -1)
    mine = local.clamp(min=0)
    sizes = {"num_experts": weights.num_experts, "tune_max_num_tokens": tune_max}
    up = grouped_gemm(GEMM1, x, local, weights.w13, **sizes)
    if w13_bias is not None:
        up = up + w13_bias[mine]
    down = grouped_gemm(GEMM2, activate(up, weights.swiglu, w2.shape[2]), local, w2, **sizes)
    if w2_bias is not None:
        down = down + w2_bias[mine]
    here = torch.where(local >= 0, topk.weights, 0.0)
    return torch.einsum("tkh,tk->th", down.float(), here.float()).to(x.dtype)


def _dequantized(weights: ExpertWeights) -> ExpertWeights:
    """Return plain matrices, because the CPU's kernels multiply nothing else."""
    if weights.w13_scale is None or weights.w2_scale is None:
        return weights
    ups, downs = zip(*map(weights.matrices, range(weights.local)), strict=True)
    return ExpertWeights(
        torch.stack(ups).bfloat16(),
        torch.stack(downs).bfloat16(),
        weights.num_experts,
        weights.first,
        w13_bias=weights.w13_bias,
        w2_bias=weights.w2_bias,
        swiglu=weights.swiglu,
        is_gated=weights.is_gated,
    )
