"""A verdict's parts, for people and for scripts, and what it advises where a server tunes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sgl_tune.errors import CheckFailed
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import cannot_tune, verdict_of
from tests.sgl_tune.modelopt import as_checkpoint
from tests.sgl_tune.planning import deployment

QWEN = {"model_path": "Qwen3-30B-A3B"}
CUTLASS = {**QWEN, "moe_runner_backend": "flashinfer_cutlass"}
IN_FP8 = {"model_path": "DeepSeek-V3", "arch": "sm100", "tp": 8}
GPT_OSS = {"model_path": "gpt-oss-120b", "arch": "sm100"}
IN_NVFP4 = {**QWEN, "quantization": "modelopt_fp4", "arch": "sm100"}
NO_KERNELS = {"model_path": "DeepSeek-V3", "moe_runner_backend": "flashinfer_trtllm"}
DRAFTED = {"model_path": "GLM-5.1-FP8", "arch": "sm100", "tp": 8, "speculative_algorithm": "EAGLE"}


def _plan(**flags: Any) -> Plan:
    return make_plan(deployment(**as_checkpoint(flags)), gpus=())


@pytest.mark.parametrize(
    ("flags", "tunes", "code", "unplanned"),
    [
        (QWEN, "nothing", 0, []),
        (CUTLASS, "planned", 0, []),
        (IN_FP8, "planned", 0, []),
        (GPT_OSS, "planned", 1, []),
        (IN_NVFP4, "planned", 0, []),
        (NO_KERNELS, "planned", 1, []),
        (DRAFTED, "planned", 0, []),
    ],
)
def test_scripts_read_what_people_are_told(
    flags: dict[str, Any], tunes: str, code: int, unplanned: list[str]
) -> None:
    found = verdict_of(_plan(**flags))
    told = found.to_json()
    assert (told["tunes"], found.exit_code) == (tunes, code)
    assert [gap["what"] for gap in told["unplanned"]] == unplanned
    assert all(gap["why"] in told["says"] for gap in told["unplanned"])
    assert (told["says"], told["obstacle"]) == (found.says, found.obstacle)


@pytest.mark.parametrize("flags", [QWEN, CUTLASS, IN_FP8, DRAFTED])
def test_what_this_runtime_has_layers_for_has_no_obstacle(flags: dict[str, Any]) -> None:
    assert cannot_tune(_plan(**flags)) is None and verdict_of(_plan(**flags)).obstacle is None


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (GPT_OSS, "this runtime has no kernels of flashinfer_mxfp4"),
        (NO_KERNELS, "FlashInfer has no kernels of flashinfer_trtllm for sm90"),
    ],
)
def test_kernels_that_are_missing_here_are_an_obstacle(flags: dict[str, Any], missing: str) -> None:
    found = verdict_of(_plan(**flags))
    assert found.obstacle == missing and found.says.endswith(f"; no warm can tune them here: {missing}")


def test_what_the_core_does_not_have_is_not_known() -> None:
    for flags in (
        {"model_path": "demo-moe", "quantization": "awq"},
        {"model_path": "demo-moe", "speculative_algorithm": "NGRAM"},
        {"model_path": "demo-moe", "speculative_algorithm": "EAGLE", "speculative_draft_model_path": "a"},
    ):
        with pytest.raises(CheckFailed, match="not known: ") as caught:
            _plan(**flags)
        assert "sgl-tune server add" in str(caught.value.remedy) and caught.value.exit_code == 1
