"""A MoE layer with kernels that FlashInfer tunes on a CPU, and tuners that leave none behind."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm

EXPERTS, HIDDEN, INNER, TOP_K = 8, 32, 16, 2
MOST_TOKENS = 16
BUCKETS = (1, 2, 4, 8, 16)


@contextmanager
def installed(tuner: AutoTuner | None) -> Iterator[None]:
    saved = AutoTuner._instance
    AutoTuner._instance = tuner
    try:
        yield
    finally:
        AutoTuner._instance = saved


class Layer:
    """Two grouped products, asked for as FlashInfer's MoE asks: gemm1, then gemm2."""

    def __init__(self, experts: int = EXPERTS, most: int = MOST_TOKENS) -> None:
        generator = torch.Generator().manual_seed(experts)
        self.most, self.experts = most, experts
        self.w13 = torch.randn(experts, 2 * INNER, HIDDEN, generator=generator)
        self.w2 = torch.randn(experts, HIDDEN, INNER, generator=generator)

    def __call__(self, rows: int = 5) -> torch.Tensor:
        sizes = {"num_experts": self.experts, "tune_max_num_tokens": self.most}
        x, expert = torch.ones(rows, HIDDEN), torch.arange(rows * TOP_K).view(rows, TOP_K) % self.experts
        up = grouped_gemm(GEMM1, x, expert, self.w13, **sizes)
        return grouped_gemm(GEMM2, up[..., :INNER].contiguous(), expert, self.w2, **sizes)

    def keys(self) -> set[str]:
        e, runner, tail = self.experts, "'CpuGroupedGemm'", f"(torch.float32, {self.experts}))"
        gemm1 = {f"('{GEMM1}', {runner}, (({t}, 32), ({t}, 2), ({e}, 32, 32)), {tail}" for t in BUCKETS}
        gemm2 = {f"('{GEMM2}', {runner}, (({t}, 2, 16), ({t}, 2), ({e}, 32, 16)), {tail}" for t in BUCKETS}
        return gemm1 | gemm2
