"""What every backend that FlashInfer tunes has in common: the tuning range, and kernels for a CPU."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch

from runtime.layers.opaque import opaque_op
from runtime.moe.backends import MoEBackend
from runtime.moe.torch_backend import activate, expert_matrix
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.backends import backend_row
from runtime.server.buckets import tuning_range


class TunedBackend(MoEBackend):
    """On a GPU (and on meta) the kernel of that name; on a CPU grouped GEMMs that are tuned just the same."""

    name: ClassVar[str]

    def prepare(self, weights: ExpertWeights) -> ExpertWeights:
        return _dequantized(weights) if weights.w13.is_cpu else self.prepare_for_gpu(weights)

    def forward(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        if not x.is_cpu:
            return self.forward_on_gpu(x, topk, weights)
        held, most = (weights.first, weights.num_experts, list(weights.swiglu)), self.tune_max(x.shape[0])
        return cpu_moe(x, topk.ids, topk.weights, weights.stored, *held, most)

    def tune_max(self, rows: int) -> int:
        """The largest bucket that SGLang names in a call with these rows."""
        runtime = self.runtime
        prefill = runtime.prefill_tokens * len(self.layout.group("attn_dp"))
        return tuning_range(backend_row(self.name), rows, prefill)

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        return weights

    @abstractmethod
    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor: ...


@opaque_op("sgl_tune::cpu_moe", mutates_args=())
def cpu_moe(
    x: torch.Tensor,
    ids: torch.Tensor,
    scores: torch.Tensor,
    stored: list[torch.Tensor | None],
    first: int,
    num_experts: int,
    swiglu: list[float],
    tune_max: int,
) -> torch.Tensor:
    """Opaque: which temporaries it makes depends on the tactics that were found."""
    from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm

    w13, w2, *_, w13_bias, w2_bias = stored
    assert w13 is not None and w2 is not None
    local = ids.long() - first
    local = torch.where((local >= 0) & (local < w13.shape[0]), local, -1)
    mine = local.clamp(min=0)
    sizes = {"num_experts": num_experts, "tune_max_num_tokens": tune_max}
    up = grouped_gemm(GEMM1, x, local, w13, **sizes)
    if w13_bias is not None:
        up = up + w13_bias[mine]
    down = grouped_gemm(GEMM2, activate(up, swiglu, w2.shape[2]), local, w2, **sizes)
    if w2_bias is not None:
        down = down + w2_bias[mine]
    here = torch.where(local >= 0, scores, 0.0)
    return torch.einsum("tkh,tk->th", down.float(), here.float()).to(x.dtype)


cpu_moe.register_fake(lambda x, *_: torch.empty_like(x))


def _dequantized(weights: ExpertWeights) -> ExpertWeights:
    """The CPU's kernels multiply plain matrices."""
    if weights.w13_scale is None or weights.w2_scale is None:
        return weights
    block = list(weights.block)

    def plain(matrices: torch.Tensor, scale: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
        experts = range(weights.local)
        return torch.stack([expert_matrix(matrices, scale, factor, number, block) for number in experts])

    return replace(
        weights,
        w13=plain(weights.w13, weights.w13_scale, weights.w13_global_scale).bfloat16(),
        w2=plain(weights.w2, weights.w2_scale, weights.w2_global_scale).bfloat16(),
        w13_scale=None,
        w2_scale=None,
        w13_global_scale=None,
        w2_global_scale=None,
    )
