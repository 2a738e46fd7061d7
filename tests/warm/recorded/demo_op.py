"""`flashinfer.demo`: a public function as FlashInfer has them, on kernels of a CPU. Its tuner is real."""

from typing import Any

import torch
from flashinfer.api_logging import flashinfer_api
from flashinfer.autotuner import AutoTuner  # what a module that asks the tuner names
from flashinfer.tllm_enums import ActivationType

from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm

__all__ = ["AutoTuner", "experts", "unmarked"]


@flashinfer_api
def experts(
    x: torch.Tensor,
    expert_ids: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    num_experts: int,
    activation: ActivationType = ActivationType.Swiglu,
    tune_max_num_tokens: int = 8,
    plan: Any = None,
) -> torch.Tensor:
    assert bool((expert_ids >= 0).all()) and int(expert_ids.max()) < num_experts
    sizes = {"num_experts": num_experts, "tune_max_num_tokens": tune_max_num_tokens}
    inner = grouped_gemm(GEMM1, x, expert_ids, w13, **sizes)
    gate, up = inner.chunk(2, dim=-1)
    act = torch.nn.functional.silu if activation is ActivationType.Swiglu else torch.nn.functional.gelu
    return grouped_gemm(GEMM2, act(gate) * up, expert_ids, w2, **sizes).sum(1)


def unmarked(x: torch.Tensor, ids: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return grouped_gemm("demo::unmarked", x, ids, w, num_experts=len(w), tune_max_num_tokens=2)
