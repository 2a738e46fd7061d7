"""A shared expert that runs as one more routed expert: loaded from its own tensors, same logits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu_clock import CpuClock
from runtime.server.sizes.call_rules import fused_shared_experts
from tests.runtime.families import make_reference, save
from tests.runtime.generation import alone, assert_answers_as, make_runtime

CUTLASS = "flashinfer_cutlass"
_EVEN = {"shared_expert_intermediate_size": 32}


@pytest.fixture(autouse=True)
def _a_tuner_without_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(AutoTuner, "_instance", CpuClock())
    yield


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("glm4_moe", {}),
        ("qwen3_next", _EVEN),
        ("deepseek_v3", {"n_routed_experts": 256}),
        ("glm_moe_dsa", {"n_routed_experts": 256}),
    ],
)
def test_a_fused_shared_expert_adds_as_alone(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = make_reference(family, **changes)
    generation = alone(save(model, tmp_path), moe_runner_backend=CUTLASS)
    layer: Any = generation.decoder.layers[-1]
    assert layer.mlp.shared is None
    assert layer.mlp.weights.num_experts == generation.model.moe.num_experts + 1  # type: ignore[union-attr]
    assert_answers_as(model, generation, length=11, steps=2)


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
    family: str, changes: dict[str, Any], runtime: dict[str, Any], ep: int, tmp_path: Path
) -> None:
    folder = save(make_reference(family, **changes), tmp_path)
    model = alone(folder).model
    assert fused_shared_experts(model, make_runtime(**runtime), ep) == 0
