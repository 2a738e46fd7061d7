"""The keys that the runtime's own layers ask FlashInfer for, on meta tensors, are the plan's and no others.

SGLang's calls, transcribed, are held against the plan in test_keys_stock; this is what `warm` really runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.autotune.installed import VERSION, WAYS
from runtime.moe import flashinfer_cutlass, flashinfer_trtllm
from runtime.start.rehearsal import Rehearsal
from sgl_tune.cache.record import parse_key
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.warm.job import make_job
from tests.memory.checkpoints import checkpoints
from tests.oracle.deepseek_v4 import FLASH_FP8, FLASH_NVFP4
from tests.oracle.published import published
from tests.sgl_tune.modelopt import as_checkpoint, in_modelopt
from tests.stock.kernel_stubs import AskingTuner, asking_tuner, install_cutlass_module, install_trtllm_module


class _Meta:
    torch_device = torch.device("meta")
    sm_major = 10


DEEPSEEK_V4 = {"DeepSeek-V4-Flash-FP8": FLASH_FP8, "DeepSeek-V4-Flash-NVFP4": FLASH_NVFP4}
GEMMA = "gemma-4-26B-A4B-it"  # whose experts go by gelu
NEXT = "Qwen3-Next-80B-A3B-Instruct"
SPARK = "muse-spark-816b-from-its-classes"  # whose experts' answers are normed one by one
_PACKED = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
_PLAIN = ["lm_head", "*self_attn*", "*expert_proj*", "*vision*", "*audio*", "model.language_model.layers.0"]
CUTLASS = [
    {"model_path": "Qwen3-30B-A3B"},
    {"model_path": "Qwen3-30B-A3B", "sglang_version": "0.5.17"},
    {"model_path": "Qwen3-30B-A3B", "tp": 4, "ep": 4},
    {"model_path": "Qwen3-235B-A22B", "tp": 8, "dp": 8, "enable_dp_attention": True, "ep": 8},
    {
        "model_path": "Qwen3-235B-A22B",
        "tp": 8,
        "dp": 8,
        "enable_dp_attention": True,
        "ep": 8,
        "moe_a2a_backend": "flashinfer",
    },
    {"model_path": "GLM-5.1", "tp": 8},
    {"model_path": "GLM-5.1", "tp": 8, "ep": 8},
    {"model_path": "Qwen3-30B-A3B", "tp": 2, "quantization": "modelopt_fp8"},
    {"model_path": GEMMA, "tp": 2},
    {"model_path": GEMMA, "tp": 2, "ep": 2},
    {"model_path": NEXT, "tp": 4},
    {"model_path": NEXT, "tp": 4, "ep": 4},  # each rank has the shared expert behind its own
]
ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
TRTLLM = [
    {"model_path": "DeepSeek-V3", "tp": 8},
    {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "enable_dp_attention": True},
    {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8},
    {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8, "dp": 8, "enable_dp_attention": True},
    {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8, "sglang_version": "0.5.17"},
    {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8, "sglang_version": "0.5.20"},
    {"model_path": "DeepSeek-V3", "tp": 8, **ROUTED},
    {"model_path": "Qwen3-30B-A3B", "tp": 4},
    {"model_path": "Qwen3-30B-A3B", **ROUTED},
    {"model_path": "Qwen3-30B-A3B", **ROUTED, "sglang_version": "0.5.17"},
    {"model_path": "DeepSeek-V3", "tp": 8, "quantization": "modelopt_fp4"},
    {"model_path": "Qwen3-235B-A22B", "tp": 4, "quantization": "modelopt_fp4", **ROUTED},
    {
        "model_path": in_modelopt("Qwen3-235B-A22B", "NVFP4", "*self_attn*"),
        "tp": 4,
        **ROUTED,
        "sglang_version": "0.5.17",
    },
    {"model_path": GEMMA, "tp": 2, "quantization": "modelopt_fp4"},
    {"model_path": GEMMA, "tp": 2, "ep": 2, "quantization": "modelopt_fp4", **ROUTED},
    {"model_path": "DeepSeek-V4-Flash-FP8", "tp": 4, **ROUTED},
    {"model_path": "DeepSeek-V4-Flash-NVFP4", "tp": 4, **ROUTED},
    {"model_path": "DeepSeek-V4-Flash-NVFP4", "tp": 4, **ROUTED, "sglang_version": "0.5.17"},
    {"model_path": SPARK, "tp": 8, "ep": 8},
    {"model_path": f"{SPARK}-nvfp4", "tp": 8, "ep": 8},
]


@pytest.fixture(autouse=True)
def _checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are no presets, where they are named by their folders."""
    gemma = next(one.config for one in checkpoints() if one.name == f"google/{GEMMA}")
    following = published()[f"Qwen/{NEXT}"].config
    spark = next(one.config for one in checkpoints() if one.name == f"a/{SPARK}")
    packed = {**spark, "quantization_config": {**_PACKED, "ignore": _PLAIN}}
    muse = {SPARK: spark, f"{SPARK}-nvfp4": packed}
    for name, config in {GEMMA: gemma, NEXT: following, **muse, **DEEPSEEK_V4}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)


def _deployment(flags: dict[str, Any]) -> Deployment:
    target = {"sglang_version": "0.5.23", "flashinfer_version": VERSION, "arch": "sm100"}
    return resolve_deployment(ServerFlags(**as_checkpoint({**target, **flags})), environ={})


def _assert_asks_what_is_planned(deployment: Deployment, tuner: AskingTuner) -> None:
    (cache, *_) = make_job(make_plan(deployment), Path(), "cuda", (0,), 1.0, False).caches
    Rehearsal(cache.model, cache.parallel, cache.runtime, _Meta()).forward_all(cache.serving_rows)
    planned = {
        entry.key: op.policy if WAYS.keeps_policies else None
        for op in expected_keys(deployment)
        # Gathered from all DP ranks, rows are at least one of each.
        for entry in op.entries
        if entry.bucket >= deployment.parallel.attn_dp and op.op not in ("fp8_gemm", "fp4_gemm")
    }
    if WAYS.keys.names_ranks:  # the plan has those of all ranks, this is the first
        assert {_without_ranks(key) for key in planned} == {_without_ranks(key) for key in tuner.asked}
        assert tuner.asked.items() <= planned.items()
    else:
        assert tuner.asked == planned


def _without_ranks(key: str) -> tuple[object, ...]:
    parts = parse_key(key)
    assert parts is not None
    return parts.op, parts.profile


def _opened(op: Any) -> Any:
    """What an opaque op does, meta tensors included."""
    return op._kernel


@pytest.mark.parametrize("flags", CUTLASS)
def test_cutlass(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install_cutlass_module(monkeypatch)
    monkeypatch.setattr(flashinfer_cutlass, "cutlass_moe", _opened(flashinfer_cutlass.cutlass_moe))
    deployment = _deployment({"arch": "sm90", "moe_runner_backend": "flashinfer_cutlass", **flags})
    _assert_asks_what_is_planned(deployment, asking_tuner(monkeypatch))


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize("flags", TRTLLM)
def test_trtllm(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install_trtllm_module(monkeypatch)
    monkeypatch.setattr(flashinfer_trtllm, "trtllm_moe", _opened(flashinfer_trtllm.trtllm_moe))
    deployment = _deployment({"moe_runner_backend": "flashinfer_trtllm", **flags})
    _assert_asks_what_is_planned(deployment, asking_tuner(monkeypatch))
