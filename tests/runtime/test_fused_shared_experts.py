"""A shared expert that runs as one more routed expert: where SGLang fuses it, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu_clock import CpuClock
from runtime.server.config import ModelConfig
from runtime.server.sizes.call_rules import fused_shared_experts
from tests.runtime.configs import model_of
from tests.runtime.families import config_json, make_reference
from tests.runtime.generation import dummy_decoder, logits_of, make_runtime

CUTLASS = "flashinfer_cutlass"
_EVEN = {"shared_expert_intermediate_size": 32}


@pytest.fixture(autouse=True)
def _a_tuner_without_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(AutoTuner, "_instance", CpuClock())
    yield


def _model(family: str, changes: dict[str, Any]) -> ModelConfig:
    return model_of(config_json(make_reference(family, **changes)))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("glm4_moe", {}),
        ("qwen3_next", _EVEN),
        ("deepseek_v3", {"n_routed_experts": 256}),
        ("glm_moe_dsa", {"n_routed_experts": 256}),
    ],
)
def test_a_fused_shared_expert_runs_as_a_routed_one(family: str, changes: dict[str, Any]) -> None:
    decoder = dummy_decoder(_model(family, changes), make_runtime(moe_runner_backend=CUTLASS))
    layer: Any = decoder.layers[-1]
    assert layer.mlp.shared is None
    assert layer.mlp.weights.num_experts == decoder.model.moe.num_experts + 1  # type: ignore[union-attr]
    assert logits_of(decoder).isfinite().all()


@pytest.mark.parametrize(
    ("family", "changes", "runtime", "ep"),
    [
        ("glm4_moe", {}, {"moe_runner_backend": CUTLASS}, 2),
        ("glm4_moe", {}, {"moe_runner_backend": CUTLASS, "moe_a2a_backend": "flashinfer"}, 1),
        ("glm4_moe", {}, {"moe_runner_backend": "flashinfer_trtllm"}, 1),
        ("glm4_moe", {}, {"moe_runner_backend": CUTLASS, "fuses_shared_experts": False}, 1),
        ("glm4_moe", {"n_shared_experts": 2}, {"moe_runner_backend": CUTLASS}, 1),
        ("deepseek_v3", {}, {"moe_runner_backend": CUTLASS}, 1),
        ("deepseek_v32", {"n_routed_experts": 256}, {"moe_runner_backend": CUTLASS}, 1),
        ("qwen3_moe", {}, {"moe_runner_backend": CUTLASS}, 1),
        ("qwen3_next", {}, {"moe_runner_backend": CUTLASS}, 1),
        ("qwen3_next", _EVEN, {"moe_runner_backend": CUTLASS}, 2),
    ],
)
def test_it_is_not_fused_where_sglang_does_not(
    family: str, changes: dict[str, Any], runtime: dict[str, Any], ep: int
) -> None:
    assert fused_shared_experts(_model(family, changes), make_runtime(**runtime), ep) == 0
