"""The grouped GEMMs of a MoE layer on a CPU, with several real ways to compute them.

FlashInfer's own AutoTuner tunes them wherever a server would tune FlashInfer's MoE kernels, in the same
buckets. The keys contain the shapes of rows, experts and matrices, the dtype, and the number of all ranks'
experts.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from flashinfer.autotuner import AutoTuner, TunableRunner, TuningConfig
from flashinfer.fused_moe.utils import get_hybrid_num_tokens_buckets, map_to_hybrid_bucket
from torch import Tensor

from runtime.autotune.installed import config_of_rows

GEMM1 = "sgl_tune::cpu_grouped_gemm1"
GEMM2 = "sgl_tune::cpu_grouped_gemm2"
_MOST_GATHERED_ROWS = 32
_MOST_DENSE_ROWS = 512
_SYNTHETIC_SEED = 20

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def masked_rows(x: Tensor, expert: Tensor, w: Tensor) -> Tensor:
    """Compute one expert after the other, each on its rows."""
    out = x.new_zeros(x.shape[0], w.shape[1])
    for number in range(w.shape[0]):
        rows = (expert == number).nonzero().squeeze(1)
        if rows.numel():
            out[rows] = x[rows] @ w[number].t()
    return out


def sorted_segments(x: Tensor, expert: Tensor, w: Tensor) -> Tensor:
    """Sort rows by expert once, then compute one matrix product per segment."""
    order = torch.argsort(expert)
    counts = torch.bincount(expert + 1, minlength=w.shape[0] + 1).tolist()
    ordered, start = x[order], counts[0]
    result = x.new_zeros(x.shape[0], w.shape[1])
    for number, count in enumerate(counts[1:]):
        if count:
            torch.mm(ordered[start : start + count], w[number].t(), out=result[start : start + count])
        start += count
    return torch.empty_like(result).index_copy_(0, order, result)


def sorted_segments_fp32(x: Tensor, expert: Tensor, w: Tensor) -> Tensor:
    """Compute in fp32, for CPUs on which half-precision products are slower than the two conversions."""
    return sorted_segments(x.float(), expert, w.float()).to(x.dtype)


def padded_batches(x: Tensor, expert: Tensor, w: Tensor) -> Tensor:
    """Pad every expert's rows to the longest, and compute one batched product."""
    order = torch.argsort(expert)
    counts = torch.bincount(expert + 1, minlength=w.shape[0] + 1)
    first = torch.cumsum(counts, 0) - counts
    ordered = expert[order]
    place = torch.arange(x.shape[0]) - first[ordered + 1]
    mine = ordered >= 0
    batch = x.new_zeros(w.shape[0], int(counts[1:].max()), x.shape[1])
    batch[ordered[mine], place[mine]] = x[order[mine]]
    out = x.new_zeros(x.shape[0], w.shape[1])
    out[order[mine]] = torch.bmm(batch, w.transpose(1, 2))[ordered[mine], place[mine]]
    return out


def gathered_weights(x: Tensor, expert: Tensor, w: Tensor) -> Tensor:
    """Copy its expert's matrix for every row, which pays only for few rows."""
    out = torch.bmm(w[expert.clamp(min=0)], x.unsqueeze(2)).squeeze(2)
    return out.masked_fill_((expert < 0).unsqueeze(1), 0)


def every_expert(x: Tensor, expert: Tensor, w: Tensor) -> Tensor:
    """Compute one large product with all experts' matrices, and discard most of it."""
    product = (x @ w.flatten(0, 1).t()).unflatten(1, w.shape[:2])
    out = product[torch.arange(x.shape[0]), expert.clamp(min=0)]
    return out.masked_fill_((expert < 0).unsqueeze(1), 0)


KERNELS: tuple[Kernel, ...] = (
    masked_rows,
    sorted_segments,
    padded_batches,
    sorted_segments_fp32,
    gathered_weights,
    every_expert,
)


class CpuGroupedGemm(TunableRunner):
    """Multiplies each of [T, k] rows by its expert's matrix. Expert -1 is on another rank: zeros."""

    def __init__(self, num_experts: int) -> None:
        self.num_experts = num_experts

    def get_cache_key_extras(self, inputs: list[Tensor]) -> tuple[Any, ...]:
        return (inputs[0].dtype, self.num_experts)

    def get_valid_tactics(self, inputs: list[Tensor], profile: Any) -> list[int]:
        x, expert, _ = inputs
        rows = expert.numel()
        unfit: dict[Kernel, bool] = {
            sorted_segments_fp32: x.dtype == torch.float32,
            gathered_weights: rows > _MOST_GATHERED_ROWS,
            every_expert: rows > _MOST_DENSE_ROWS,
        }
        return [number for number, kernel in enumerate(KERNELS) if not unfit.get(kernel, False)]

    def forward(
        self, inputs: list[Tensor], tactic: int = -1, do_preparation: bool = False, **_: Any
    ) -> Tensor | None:
        if do_preparation:
            return None
        x, expert, w = inputs
        rows = (x.unsqueeze(1).expand(*expert.shape, -1) if x.dim() == 2 else x).flatten(0, 1)
        kernel = masked_rows if tactic == -1 else KERNELS[tactic]
        return kernel(rows, expert.flatten(), w).unflatten(0, expert.shape)


@cache
def tuning_config(tune_max_num_tokens: int, local_experts: int) -> TuningConfig:
    """Return one object for all calls with the same sizes: FlashInfer memoises lookups by its identity."""
    return config_of_rows(
        get_hybrid_num_tokens_buckets(tune_max_num_tokens),
        partial(map_to_hybrid_bucket, max_num_tokens=tune_max_num_tokens),
        inputs=(0, 1),
        initializers={1: _even_routing(local_experts)},
    )


def _even_routing(local_experts: int) -> Callable[..., Tensor]:
    def initializer(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        generator = torch.Generator(device).manual_seed(_SYNTHETIC_SEED)
        return torch.randint(local_experts, shape, dtype=dtype, device=device, generator=generator)

    return initializer


def grouped_gemm(
    op: str, x: Tensor, expert: Tensor, w: Tensor, *, num_experts: int, tune_max_num_tokens: int
) -> Tensor:
    """Multiply x [T, K] or [T, k, K] by expert: `expert` [T, k] int64 are this rank's, w is [E, N, K]."""
    inputs = [x, expert, w]
    config = tuning_config(tune_max_num_tokens, w.shape[0])
    runner, tactic = AutoTuner.get().choose_one(op, [CpuGroupedGemm(num_experts)], config, inputs)
    return runner(inputs, tactic=tactic)
