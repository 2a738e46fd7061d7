"""The keys that the runtime's own layers ask FlashInfer for, on meta tensors, are the plan's and no others.

SGLang's calls, transcribed, are held against the plan in test_keys_stock; this is what `warm` really runs.
"""

from pathlib import Path
from typing import Any

import pytest

from runtime.autotune.installed import VERSION
from runtime.flashinfer.versions import other_keys_of
from runtime.moe import flashinfer_cutlass, flashinfer_trtllm
from runtime.start.rehearsal import Rehearsal
from sgl_tune.keys.plan import make_plan
from sgl_tune.warm.job import make_job
from tests.stock import kernel_stubs
from tests.stock.calls import deployment_of, planned_experts

if other_keys_of(VERSION):
    pytest.skip("the core plans the newest FlashInfer's keys", allow_module_level=True)


WIDE = {"model_path": "Qwen3-235B-A22B", "tp": 8, "dp": 8, "enable_dp_attention": True, "ep": 8}
CUTLASS = [
    {"model_path": "Qwen3-30B-A3B"},
    {"model_path": "Qwen3-30B-A3B", "tp": 4, "ep": 4},
    WIDE,
    {**WIDE, "moe_a2a_backend": "flashinfer"},
    {"model_path": "GLM-5.1", "tp": 8},
    {"model_path": "GLM-5.1", "tp": 8, "ep": 8},
    {"model_path": "Qwen3-30B-A3B", "tp": 2, "quantization": "modelopt_fp8"},
]
ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
TRTLLM = [
    {"model_path": "DeepSeek-V3", "tp": 8},
    {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "enable_dp_attention": True},
    {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8},
    {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8, "dp": 8, "enable_dp_attention": True},
    {"model_path": "DeepSeek-V3", "tp": 8, **ROUTED},
    {"model_path": "Qwen3-30B-A3B", "tp": 4},
    {"model_path": "Qwen3-30B-A3B", **ROUTED},
    {"model_path": "Qwen3-235B-A22B", "tp": 4, "quantization": "modelopt_fp4", **ROUTED},
]


def _assert_asks_what_is_planned(tuner: kernel_stubs.AskingTuner, flags: dict[str, Any]) -> None:
    deployment = deployment_of(flashinfer_version=VERSION, **flags)
    (cache, *_) = make_job(make_plan(deployment), Path(), "cuda", (0,)).caches
    Rehearsal(cache.model, cache.parallel, cache.runtime, kernel_stubs.Meta()).forward_all(cache.serving_rows)
    # Gathered from all DP ranks, rows are at least one of each.
    assert tuner.asked == planned_experts(deployment, least=deployment.parallel.attn_dp)


@pytest.mark.parametrize("flags", CUTLASS)
def test_cutlass_asks_for_the_planned_keys(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_stubs.install_cutlass_module(monkeypatch)
    monkeypatch.setattr(flashinfer_cutlass, "cutlass_moe", flashinfer_cutlass.cutlass_moe.run)
    cutlass = {"arch": "sm90", "moe_runner_backend": "flashinfer_cutlass"}
    _assert_asks_what_is_planned(kernel_stubs.asking_tuner(monkeypatch), {**cutlass, **flags})


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize("flags", TRTLLM)
def test_trtllm_asks_for_the_planned_keys(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_stubs.install_trtllm_module(monkeypatch)
    monkeypatch.setattr(flashinfer_trtllm, "trtllm_moe", flashinfer_trtllm.trtllm_moe.run)
    trtllm = {"moe_runner_backend": "flashinfer_trtllm"}
    _assert_asks_what_is_planned(kernel_stubs.asking_tuner(monkeypatch), {**trtllm, **flags})
