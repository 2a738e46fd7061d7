"""A verdict's parts, for people and for scripts, and what it advises where a server tunes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.advice import advised
from sgl_tune.keys.gaps import serving_gaps
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.tunable import cannot_tune
from sgl_tune.keys.verdict import verdict_of

QWEN = {"model_path": "Qwen3-30B-A3B"}
CUTLASS = {**QWEN, "moe_runner_backend": "flashinfer_cutlass"}
IN_FP8 = {"model_path": "DeepSeek-V3", "arch": "sm100", "tp": 8}
GPT_OSS = {"model_path": "gpt-oss-120b", "arch": "sm100"}
IN_NVFP4 = {"model_path": "DeepSeek-V3", "quantization": "modelopt_fp4", "arch": "sm100", "tp": 8}
NO_KERNELS = {"model_path": "DeepSeek-V3", "moe_runner_backend": "flashinfer_trtllm"}
DRAFTED = {"model_path": "GLM-5.1-FP8", "arch": "sm100", "tp": 8, "speculative_algorithm": "EAGLE"}


def _plan(**flags: Any) -> Plan:
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm90"}
    return make_plan(resolve_deployment(ServerFlags(**{**target, **flags}), environ={}), gpus=())


@pytest.mark.parametrize(
    ("flags", "tunes", "code", "runs", "unplanned"),
    [
        (QWEN, "nothing", 0, True, []),
        (CUTLASS, "planned", 0, True, []),
        (IN_FP8, "planned", 0, True, []),
        (GPT_OSS, "planned", 0, True, []),
        (IN_NVFP4, "planned", 0, True, []),
        (NO_KERNELS, "nothing", 1, False, []),
        (DRAFTED, "planned", 0, True, []),
    ],
)
def test_scripts_read_what_people_are_told(
    flags: dict[str, Any], tunes: str, code: int, runs: bool, unplanned: list[str]
) -> None:
    found = verdict_of(_plan(**flags))
    told = found.to_json()
    assert (told["tunes"], found.exit_code, found.runs) == (tunes, code, runs)
    assert [gap["what"] for gap in told["unplanned"]] == unplanned
    assert all(gap["why"] in told["says"] for gap in told["unplanned"])
    assert (told["says"], told["obstacle"], told["advice"]) == (found.says, found.obstacle, None)


@pytest.mark.parametrize("flags", [QWEN, CUTLASS, IN_FP8, DRAFTED])
def test_what_this_runtime_has_layers_for_has_no_obstacle(flags: dict[str, Any]) -> None:
    assert cannot_tune(_plan(**flags)) is None and verdict_of(_plan(**flags)).obstacle is None


def test_kernels_that_are_missing_here_are_an_obstacle() -> None:
    missing = "this runtime has no kernels of flashinfer_mxfp4"
    found = verdict_of(_plan(**GPT_OSS))
    assert found.obstacle == missing
    assert found.says == f"tunes 1 op, 22 entries in 1 file; no warm can tune them here: {missing}"


@pytest.mark.parametrize(
    ("flags", "added", "dropped"),
    [
        (QWEN, "--moe-runner-backend flashinfer_cutlass", ""),
        ({**QWEN, "moe_runner_backend": "triton"}, "--moe-runner-backend flashinfer_cutlass", ""),
        (
            {**QWEN, "moe_runner_backend": "triton", "tp": 8, "ep": 2},
            *("--moe-runner-backend flashinfer_cutlass --ep-size 8", ""),
        ),
        ({**CUTLASS, "disable_flashinfer_autotune": True}, "", "--disable-flashinfer-autotune"),
        (
            {**QWEN, "disable_flashinfer_autotune": True},
            *("--moe-runner-backend flashinfer_cutlass", "--disable-flashinfer-autotune"),
        ),
        ({**NO_KERNELS, "tp": 8, "arch": "sm100", "quantization": "fp8", "disable_flashinfer_autotune": True},
         "", "--disable-flashinfer-autotune"),
    ],
)  # fmt: skip
def test_the_least_change_that_tunes_is_advised(flags: dict[str, Any], added: str, dropped: str) -> None:
    plain, found = verdict_of(_plan(**flags)), advised(_plan(**flags))
    assert found.advice == {"with": added, "without": dropped}
    how = " and ".join(filter(None, (dropped and f"without {dropped}", added and f"with {added}")))
    assert found.says.startswith(f"{plain.says}; {how} it tunes ")


@pytest.mark.parametrize("flags", [CUTLASS, IN_FP8, DRAFTED])
def test_nothing_is_advised_to_who_tunes(flags: dict[str, Any]) -> None:
    assert advised(_plan(**flags)) == verdict_of(_plan(**flags))


def test_nothing_is_advised_where_nothing_would_help() -> None:
    dense = {"model_path": "Llama-3.1-8B"}
    assert advised(_plan(**dense)) == verdict_of(_plan(**dense))


@pytest.mark.parametrize(
    ("flags", "gaps"),
    [
        (QWEN, 0),
        (CUTLASS, 0),
        (IN_FP8, 0),
        (IN_NVFP4, 1),
        ({**CUTLASS, "quantization": "modelopt_fp4", "arch": "sm100"}, 0),
        ({**QWEN, "quantization": "modelopt_fp4", "arch": "sm100"}, 0),
    ],
)
def test_unfinalised_experts_are_latent_models_in_nvfp4(flags: dict[str, Any], gaps: int) -> None:
    assert len(serving_gaps(_plan(**flags).deployment)) == gaps
