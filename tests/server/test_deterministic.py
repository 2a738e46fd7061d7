"""Deterministic inference: what is left of the attention kernels."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.errors import ConfigError
from tests.server.servers import (
    B200,
    H100,
    LLAMA,
    NEXT,
    PRO,
    R1,
    V32,
    VERSIONS,
    changed_in,
    checkpoint,
    server,
)

LITE = checkpoint("Glm4MoeLiteForCausalLM", "glm4_moe_lite", kv_lora_rank=512)


def _backends(model: dict[str, Any], gpu: str, flags: dict[str, Any]) -> dict[str, str]:
    def backend(version: str) -> str:
        flagged = {"enable_deterministic_inference": True, "moe_runner_backend": "triton", **flags}
        try:
            return server(model, gpu, version, **flagged).attention_backend
        except ConfigError:
            return "refused"

    return changed_in([backend(version) for version in VERSIONS])


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "found"),
    [
        (LLAMA, H100, {}, {"12": "fa3"}),
        (LLAMA, B200, {}, {"12": "flashinfer"}),
        (LLAMA, PRO, {}, {"12": "flashinfer"}),
        (LLAMA, H100, {"attention_backend": "triton"}, {"12": "triton"}),
        (LLAMA, H100, {"attention_backend": "flashinfer"}, {"12": "flashinfer"}),
        (LLAMA, B200, {"attention_backend": "fa4"}, {"12": "refused", "16": "fa4"}),
        (LLAMA, B200, {"attention_backend": "trtllm_mha"}, {"12": "refused"}),
        (LLAMA, H100, {"attention_backend": "ascend"}, {"12": "refused", "13": "ascend"}),
        (LLAMA, H100, {"attention_backend": "intel_xpu"}, {"12": "refused", "19": "intel_xpu"}),
        (R1, H100, {}, {"12": "fa3"}),
        (R1, PRO, {}, {"12": "triton"}),
        (R1, B200, {}, {"12": "refused"}),
        (R1, B200, {"attention_backend": "triton"}, {"12": "triton"}),
        (R1, B200, {"attention_backend": "flashinfer"}, {"12": "refused"}),
        (R1, B200, {"attention_backend": "fa4"}, {"12": "refused", "17": "fa4"}),
        (R1, H100, {"attention_backend": "fa4"}, {"12": "refused"}),
        (V32, H100, {}, {"12": "refused"}),
        (LITE, B200, {}, {"12": "flashinfer", "18": "triton"}),
    ],
)
def test_what_is_deterministic(
    model: dict[str, Any], gpu: str, flags: dict[str, Any], found: dict[str, str]
) -> None:
    assert _backends(model, gpu, flags) == found


@pytest.mark.parametrize(
    "architecture",
    [
        *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"),
        *("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration", "GlmMoeDsaForCausalLM"),
    ],
)
def test_absorbed_mla_is_deterministic_on_triton(architecture: str) -> None:
    one = {**R1, "architectures": [architecture]}
    for version in ("0.5.12", "0.5.17", "0.5.23"):
        asked = {"version": version, "enable_deterministic_inference": True}
        assert server(one, PRO, **asked).attention_backend == "triton"


def test_on_policy_training_is_deterministic() -> None:
    assert server(LLAMA, B200, rl_on_policy_target="fsdp").attention_backend == "flashinfer"


def test_fa3_and_triton_keep_shared_prefixes() -> None:
    for version in ("0.5.12", "0.5.13", "0.5.16", "0.5.23"):
        for backend, kept in (("fa3", True), ("triton", True), ("flashinfer", False)):
            flags = {"attention_backend": backend, "enable_deterministic_inference": True}
            assert ("disable_radix_cache" not in server(LLAMA, H100, version, **flags).why) == kept


def test_flashinfer_gives_up_shared_prefixes() -> None:
    """Seen by what follows: without a radix cache, states need no extra buffer and pages are free."""
    flags = {"enable_deterministic_inference": True, "mamba_radix_cache_strategy": "auto"}
    assert server(NEXT, H100, **flags).attention_backend == "fa3"
    assert server(LLAMA, B200, **flags).why["disable_radix_cache"] == "deterministic inference"
    assert "disable_radix_cache" not in server(LLAMA, H100, **flags).why
