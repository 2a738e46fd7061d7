"""A verdict's parts, for people and for scripts, and what it advises where a server tunes nothing."""

from typing import Any

import pytest

from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.verdict import verdict_of
from tests.sgl_tune.modelopt import as_checkpoint
from tests.sgl_tune.planning import deployment

QWEN = {"model_path": "Qwen3-30B-A3B"}
CUTLASS = {**QWEN, "moe_runner_backend": "flashinfer_cutlass"}
IN_FP8 = {"model_path": "DeepSeek-V3", "arch": "sm100", "tp": 8}
GPT_OSS = {"model_path": "gpt-oss-120b", "arch": "sm100"}
IN_NVFP4 = {**QWEN, "quantization": "modelopt_fp4", "arch": "sm100"}
NO_KERNELS = {"model_path": "DeepSeek-V3", "moe_runner_backend": "flashinfer_trtllm"}
DRAFTED = {"model_path": "GLM-5.1-FP8", "arch": "sm100", "tp": 8, "speculative_algorithm": "EAGLE"}


@pytest.mark.parametrize(
    ("flags", "tunes", "missing"),
    [
        (QWEN, "nothing", None),
        (CUTLASS, "planned", None),
        (IN_FP8, "planned", None),
        (GPT_OSS, "planned", "this runtime has no kernels of flashinfer_mxfp4"),
        (IN_NVFP4, "planned", None),
        (NO_KERNELS, "planned", "FlashInfer has no kernels of flashinfer_trtllm for sm90"),
        (DRAFTED, "planned", None),
    ],
)
def test_scripts_read_what_people_are_told(flags: dict[str, Any], tunes: str, missing: str | None) -> None:
    found = verdict_of(make_plan(deployment(**as_checkpoint(flags)), gpus=()))
    told = found.to_json()
    assert (told["tunes"], told["unplanned"], found.exit_code) == (tunes, [], int(missing is not None))
    assert (told["says"], told["obstacle"], found.obstacle) == (found.says, missing, missing)
    assert missing is None or found.says.endswith(f"; no warm can tune them here: {missing}")
