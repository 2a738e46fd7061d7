"""Experts in mxfp4 on Hopper: as the reference computes them, and by the very keys that a plan expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import flashinfer
import pytest
import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.record import record_asked
from runtime.devices.cuda import Cuda
from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import rank_layout
from runtime.server.parallel_config import ParallelConfig
from runtime.start.rehearsal import Rehearsal
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import expected_keys
from tests.runtime.tuned_layer import installed

if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

HIDDEN, EXPERTS, TOP_K = 512, 16, 4
GPT_OSS = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}
MXFP4 = {
    "moe_runner_backend": "flashinfer_mxfp4",
    "flashinfer_version": flashinfer.__version__,
    "arch": "sm90",
}


@pytest.fixture(autouse=True)
def _own_tuner() -> Iterator[None]:
    with installed(AutoTuner()):
        yield


def _generator(seed: int) -> torch.Generator:
    return torch.Generator("cuda").manual_seed(seed)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    values = torch.randn(shape, generator=_generator(seed + sum(shape)), device="cuda")
    return values.to(torch.bfloat16)


def _bytes(*shape: int, low: int = 0, high: int = 256) -> torch.Tensor:
    generator = _generator(sum(shape))
    return torch.randint(low, high, shape, generator=generator, device="cuda", dtype=torch.uint8)


def _weights(inner: int, hidden: int, biases: bool, wide: bool, **gates: float) -> ExpertWeights:
    """`hidden` as wide as it is kept; `wide` scales are powers of two, others their exponents."""
    w13_scale = _bytes(EXPERTS, 2 * inner, hidden // 32, low=118, high=124)
    w2_scale = _bytes(EXPERTS, hidden, inner // 32, low=118, high=124)
    if wide:
        w13_scale, w2_scale = (torch.exp2(scale.float() - 127) for scale in (w13_scale, w2_scale))
    return ExpertWeights(
        _bytes(EXPERTS, 2 * inner, hidden // 2),
        _bytes(EXPERTS, hidden, inner // 2),
        num_experts=EXPERTS,
        w13_scale=w13_scale,
        w2_scale=w2_scale,
        w13_bias=_random(EXPERTS, 2 * inner) if biases else None,
        w2_bias=_random(EXPERTS, hidden) if biases else None,
        swiglu_alpha=gates.get("swiglu_alpha"),
        swiglu_limit=gates.get("swiglu_limit"),
        caps_before="swiglu_alpha" not in gates and "swiglu_limit" in gates,
    )


def _backend(name: str, inner: int) -> MoEBackend:
    model = ModelConfig(
        model_type="gpt_oss",
        hidden_size=HIDDEN,
        num_layers=1,
        intermediate_size=inner,
        vocab_size=128,
        max_position=128,
        moe=MoEConfig(num_experts=EXPERTS, top_k=TOP_K, intermediate_size=inner),
    )
    runtime = RuntimeConfig(moe_runner_backend=name, prefill_tokens=64, sm_major=9)
    return make_backend(name, model, runtime, rank_layout(ParallelConfig(), 0), torch.device("cuda"))


@pytest.mark.parametrize("rows", [1, 37, 300])
@pytest.mark.parametrize(
    ("inner", "hidden", "biases", "wide", "gates"),
    [
        (384, HIDDEN, False, False, {"swiglu_limit": 10.0}),
        (384, HIDDEN, False, True, {"swiglu_limit": 1.0}),
        (352, HIDDEN, True, False, GPT_OSS),
        (288, HIDDEN + 256, True, False, GPT_OSS),
    ],
)
def test_answers_equal_the_reference(
    rows: int, inner: int, hidden: int, biases: bool, wide: bool, gates: dict[str, float]
) -> None:
    x, logits = _random(rows, HIDDEN), _random(rows, EXPERTS, seed=5).float()
    scores, ids = logits.softmax(-1).topk(TOP_K)
    topk, loaded = TopK(ids.int(), scores, logits), _weights(inner, hidden, biases, wide, **gates)
    given = torch.nn.functional.pad(x, (0, hidden - HIDDEN))
    want = _backend("torch", inner).forward(given, topk, loaded)[:, :HIDDEN].float()
    ours = _backend("flashinfer_mxfp4", inner)
    kept = replace(loaded, w13=loaded.w13.clone(), w2=loaded.w2.clone())
    got = ours.forward(x, topk, ours.prepare(kept))
    assert got.shape == x.shape
    assert ((got.float() - want).norm() / want.norm()).item() < 1e-2


@pytest.mark.parametrize(
    "flags",
    [{"model_path": "gpt-oss-20b", "tp": 2}, {"model_path": "gpt-oss-120b", "tp": 8, "ep": 2}],
)
def test_what_a_warm_asks_for_is_planned(flags: dict[str, Any]) -> None:
    deployment = resolve_deployment(ServerFlags.of(**{**MXFP4, **flags}))
    ops = expected_keys(deployment)
    moe = [op for op in ops if op.op.startswith("trtllm::fused_moe")]
    rehearsal = Rehearsal(deployment.model, deployment.parallel, deployment.runtime, Cuda(0))
    with record_asked() as record:
        rehearsal.forward_all(sorted({bucket for op in moe for bucket in op.buckets}))
    assert len(moe) == 2
    asked, planned = record.keys("serving"), {key for op in moe for key in op.keys}
    assert asked - {key for op in ops for key in op.keys} == set()
    # With DP attention a batch has a multiple of its ranks' rows.
    assert planned & asked and (deployment.parallel.attn_dp > 1 or not planned - asked)
