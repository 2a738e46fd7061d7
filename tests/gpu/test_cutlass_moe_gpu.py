"""FlashInfer's CUTLASS MoE through our backend: right answers, and the very keys that a plan expects."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.record import record_asked
from runtime.layers.gemms import fp8_gemm, quantize_fp8
from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, RuntimeConfig, Vocabulary
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import ParallelConfig, rank_layout
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import expected_keys
from tests.runtime.configs import runtime_config
from tests.runtime.tuned_layer import installed

if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

HIDDEN, INNER, EXPERTS, TOP_K = 1024, 512, 16, 4


@pytest.fixture(autouse=True)
def _own_tuner() -> Iterator[None]:
    with installed(AutoTuner()):
        yield


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16) * 0.1


RUNTIME = runtime_config(moe_runner_backend="flashinfer_cutlass", prefill_tokens=64)


def _backend(name: str, ep: int = 1, rank: int = 0, runtime: RuntimeConfig = RUNTIME) -> MoEBackend:
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "max_position": 128}
    experts = MoEConfig(num_experts=EXPERTS, top_k=TOP_K, intermediate_size=INNER)
    model = ModelConfig("qwen3_moe", vocabulary=Vocabulary(128), moe=experts, **sizes)
    layout = rank_layout(ParallelConfig(tp=ep, ep=ep), rank)
    return make_backend(model, runtime_config(runtime, moe_runner_backend=name), layout)


def _weights(first: int = 0, local: int = EXPERTS) -> ExpertWeights:
    mine = slice(first, first + local)
    w13, w2 = _random(EXPERTS, 2 * INNER, HIDDEN), _random(EXPERTS, HIDDEN, INNER)
    return ExpertWeights(w13[mine].clone(), w2[mine].clone(), num_experts=EXPERTS, first=first)


def _topk(rows: int) -> TopK:
    logits = _random(rows, EXPERTS, seed=5).float()
    scores, ids = logits.softmax(-1).topk(TOP_K)
    return TopK(ids.int(), scores, logits)


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


@pytest.mark.parametrize("rows", [1, 37, 300])
def test_bf16_equals_the_reference(rows: int) -> None:
    ours, reference = _backend("flashinfer_cutlass"), _backend("torch")
    x, topk = _random(rows, HIDDEN), _topk(rows)
    want = reference.forward(x, topk, _weights())
    assert _error(ours.forward(x, topk, ours.prepare(_weights())), want) < 1e-2


def test_a_clamped_gate_equals_the_reference() -> None:
    ours, reference = _backend("flashinfer_cutlass"), _backend("torch")
    x, topk = _random(64, HIDDEN), _topk(64)
    clamped = replace(_weights(), swiglu=(1.7, 0.3))
    want = reference.forward(x, topk, clamped)
    got = ours.forward(x, topk, ours.prepare(replace(clamped, w13=clamped.w13.clone())))
    assert _error(got, want) < 1e-2


def test_the_parts_of_expert_parallel_ranks_add_up() -> None:
    x, topk = _random(64, HIDDEN), _topk(64)
    want = _backend("torch").forward(x, topk, _weights())
    total = torch.zeros_like(want, dtype=torch.float32)
    for rank in range(4):
        ours = _backend("flashinfer_cutlass", ep=4, rank=rank)
        total += ours.forward(x, topk, ours.prepare(_weights(first=4 * rank, local=4))).float()
    assert _error(total, want) < 1e-2


def test_dense_fp8_equals_the_product() -> None:
    x, weight = _random(64, 512), _random(256, 512)
    scales = [t.abs().amax().float() / 448 for t in (x, weight)]
    quantized = [quantize_fp8(t, scale) for t, scale in zip((x, weight), scales, strict=True)]
    got = fp8_gemm(quantized[0], quantized[1], scales[0], scales[1], torch.bfloat16)
    assert _error(got, x.float() @ weight.float().t()) < 5e-2


def test_the_keys_asked_for_are_the_plan_s() -> None:
    """Qwen3-30B-A3B's experts at full width: tuning asks for exactly the keys that the plan lists."""
    versions = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm90"}
    served = {"model_path": "Qwen3-30B-A3B", "moe_runner_backend": "flashinfer_cutlass"}
    deployment = resolve_deployment(ServerFlags.of(**served, **versions))
    model, moe = deployment.model, deployment.model.moe
    assert moe is not None
    layout = rank_layout(deployment.parallel, 0)
    backend = make_backend(model, deployment.runtime, layout)
    experts, hidden, inner = moe.num_experts, model.hidden_size, moe.intermediate_size
    weights = ExpertWeights(
        torch.zeros(experts, 2 * inner, hidden, device="cuda", dtype=torch.bfloat16),
        torch.zeros(experts, hidden, inner, device="cuda", dtype=torch.bfloat16),
        num_experts=experts,
    )
    planned = {key for op in expected_keys(deployment) for key in op.keys}
    with record_asked() as record:
        for rows in sorted({bucket for op in expected_keys(deployment) for bucket in op.buckets}):
            topk = TopK(
                torch.zeros(rows, moe.top_k, dtype=torch.int32, device="cuda"),
                torch.ones(rows, moe.top_k, device="cuda"),
                torch.zeros(rows, experts, device="cuda"),
            )
            backend.forward(torch.zeros(rows, hidden, device="cuda", dtype=torch.bfloat16), topk, weights)
    assert record.keys("serving") == planned


OPS = {"trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2"}


def test_tuning_changes_the_time_and_not_the_answer() -> None:
    ours, x, topk = _backend("flashinfer_cutlass"), _random(64, HIDDEN), _topk(64)
    weights = ours.prepare(_weights())
    before = ours.forward(x, topk, weights)
    with autotune(True):
        ours.forward(x, topk, weights)
    assert {entry.custom_op for entry in AutoTuner.get().profiling_cache} == OPS
    assert _error(ours.forward(x, topk, weights), before) < 1e-2
