"""The CPU's grouped GEMMs: every tactic computes the same, and the tuned layer equals the reference."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.cpu import GEMM1, KERNELS, CpuGroupedGemm, every_expert, gathered_weights, grouped_gemm
from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, Vocabulary
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import ParallelConfig, rank_layout
from tests.runtime.configs import runtime_config
from tests.runtime.tuned_layer import installed

EXPERTS, HIDDEN, INNER, TOP_K = 8, 48, 32, 2


@pytest.fixture(autouse=True)
def _own_tuner() -> Iterator[None]:
    with installed(CpuSearchTuner()):
        yield


def _random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype) * 0.3


def _experts(rows: int, low: int = -1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.randint(low, EXPERTS, (rows, TOP_K), generator=generator)


def _row_by_row(x: torch.Tensor, expert: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(*expert.shape, w.shape[1])
    for row, slot in torch.cartesian_prod(*map(torch.arange, expert.shape)).tolist():
        if expert[row, slot] >= 0:
            given = x[row] if x.dim() == 2 else x[row, slot]
            out[row, slot] = w[expert[row, slot]].float() @ given.float()
    return out


@pytest.mark.parametrize("tactic", [-1, *range(len(KERNELS))])
@pytest.mark.parametrize("rows", [1, 5, 130])
@pytest.mark.parametrize("shared", [True, False], ids=["a row for all", "a row for each"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_tactic_equals_the_product(
    tactic: int, rows: int, shared: bool, dtype: torch.dtype, tolerance: float
) -> None:
    x = _random(rows, HIDDEN, dtype=dtype) if shared else _random(rows, TOP_K, HIDDEN, dtype=dtype)
    expert, w = _experts(rows), _random(EXPERTS, INNER, HIDDEN, dtype=dtype)
    got = CpuGroupedGemm(EXPERTS).forward([x, expert, w], tactic)
    assert got is not None and got.dtype == dtype
    torch.testing.assert_close(got.float(), _row_by_row(x, expert, w), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("tactic", range(len(KERNELS)))
def test_rows_of_other_ranks_are_zero(tactic: int) -> None:
    x, w = _random(3, HIDDEN), _random(EXPERTS, INNER, HIDDEN)
    got = CpuGroupedGemm(EXPERTS).forward([x, torch.full((3, TOP_K), -1), w], tactic)
    assert got is not None and not got.any()


def test_tactics_that_need_memory_are_for_few_rows() -> None:
    x, w = _random(1, HIDDEN, dtype=torch.bfloat16), _random(EXPERTS, INNER, HIDDEN, dtype=torch.bfloat16)

    def fitting(rows: int) -> list[Any]:
        tactics = CpuGroupedGemm(EXPERTS).get_valid_tactics([x, _experts(rows), w], None)
        return [KERNELS[tactic] for tactic in tactics]

    assert fitting(1) == list(KERNELS)
    assert gathered_weights not in fitting(100) and every_expert in fitting(100)
    assert every_expert not in fitting(1000) and len(fitting(1000)) == 4


def test_tuning_writes_the_keys_that_a_plan_predicts() -> None:
    x, w = _random(3, HIDDEN, dtype=torch.bfloat16), _random(EXPERTS, 2 * INNER, HIDDEN, dtype=torch.bfloat16)
    with autotune(True):
        grouped_gemm(GEMM1, x, _experts(3, 0), w, num_experts=16, tune_max_num_tokens=4)
    assert [key.file_key for key in AutoTuner.get().profiling_cache] == [
        f"('sgl_tune::cpu_grouped_gemm1', 'CpuGroupedGemm', (({tokens}, 48), ({tokens}, 2), (8, 64, 48)), "
        "(torch.bfloat16, 16))"
        for tokens in (1, 2, 4)
    ]
    assert not AutoTuner.get().stats.failed_tactics


def _weights(first: int = 0, local: int = EXPERTS, **more: Any) -> ExpertWeights:
    w13, w2 = _random(EXPERTS, 2 * INNER, HIDDEN), _random(EXPERTS, HIDDEN, INNER)
    mine = slice(first, first + local)
    weights = ExpertWeights(w13[mine].clone(), w2[mine].clone(), num_experts=EXPERTS, first=first)
    return replace(weights, **more)


def _backends(name: str, ep: int = 1, rank: int = 0, **moe: Any) -> tuple[MoEBackend, MoEBackend]:
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "max_position": 64}
    experts = MoEConfig(**{"num_experts": EXPERTS, "top_k": TOP_K, "intermediate_size": INNER, **moe})
    model = ModelConfig("qwen3_moe", vocabulary=Vocabulary(64), moe=experts, **sizes)
    layout = rank_layout(ParallelConfig(tp=ep, ep=ep), rank)
    kernels = (runtime_config(moe_runner_backend=one, prefill_tokens=64) for one in (name, "torch"))
    ours, reference = (make_backend(model, runtime, layout) for runtime in kernels)
    return ours, reference


def _topk(rows: int, count: int = TOP_K) -> TopK:
    logits = _random(rows, EXPERTS, seed=9)
    scores, ids = logits.softmax(-1).topk(count)
    return TopK(ids.int(), scores, logits)


BIASES = {"w13_bias": _random(EXPERTS, 2 * INNER), "w2_bias": _random(EXPERTS, HIDDEN)}
CLAMPED = {"swiglu": (1.7, 0.5)}


@pytest.mark.parametrize("more", [{}, BIASES, CLAMPED, {**BIASES, **CLAMPED}])
@pytest.mark.parametrize("name", ["flashinfer_cutlass", "flashinfer_trtllm"])
def test_the_layer_equals_the_reference(name: str, more: dict[str, Any]) -> None:
    ours, reference = _backends(name)
    weights, x, topk = _weights(**more), _random(33, HIDDEN), _topk(33)
    want = reference.forward(x, topk, weights)
    prepared = ours.prepare(weights)
    untuned = ours.forward(x, topk, prepared)
    with autotune(True):
        tuned = ours.forward(x, topk, prepared)
    for got in (untuned, tuned, ours.forward(x, topk, prepared)):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_the_parts_of_expert_parallel_ranks_add_up() -> None:
    x, topk = _random(9, HIDDEN), _topk(9)
    _, reference = _backends("flashinfer_cutlass")
    want = reference.forward(x, topk, _weights())
    parts = []
    for rank in range(4):
        ours, _ = _backends("flashinfer_cutlass", ep=4, rank=rank)
        parts.append(ours.forward(x, topk, ours.prepare(_weights(first=2 * rank, local=2))))
    torch.testing.assert_close(sum(parts), want, atol=1e-5, rtol=1e-4)


def test_quantised_experts_are_tuned_as_plain_matrices() -> None:
    ours, reference = _backends("flashinfer_cutlass")
    plain = _weights()
    scales = plain.w13.abs().amax((1, 2)) / 448, plain.w2.abs().amax((1, 2)) / 448
    weights = replace(
        plain,
        w13=(plain.w13 / scales[0][:, None, None]).to(torch.float8_e4m3fn),
        w2=(plain.w2 / scales[1][:, None, None]).to(torch.float8_e4m3fn),
        w13_scale=scales[0],
        w2_scale=scales[1],
    )
    x, topk = _random(5, HIDDEN, dtype=torch.bfloat16), _topk(5)
    want = reference.forward(x, topk, weights)
    got = ours.forward(x, topk, ours.prepare(weights))
    torch.testing.assert_close(got.float(), want.float(), atol=2e-2, rtol=2e-2)
