"""Dense GEMMs by the backend that was asked for, and ops that a server does not measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.models import presets
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.tunable import cannot_tune
from tests.oracle.published import published
from tests.sgl_tune.modelopt import in_modelopt

TARGET: dict[str, Any] = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm100"}


def _commanded(release: str, gpu: str, *argv: str) -> Deployment:
    words = ["python", "-m", "sglang.launch_server", *argv]
    flags = ServerFlags(sglang_version=release, gpu=gpu)
    return select_deployments(flags, words, environ={})[0]


@pytest.mark.parametrize(
    ("release", "gpu", "quantization", "op", "runner"),
    [
        ("0.5.14", "B200", "mxfp8", "mxfp8_gemm", "CutlassMxfp8GemmRunner"),
        ("0.5.14", "B200", "awq", None, None),  # by kernels of their own
        ("0.5.16", "B200", "mxfp8", None, None),
    ],
)
def test_a_chosen_fp8_gemm_is_of_mxfp8_weights(
    release: str, gpu: str, quantization: str, op: str | None, runner: str | None
) -> None:
    chosen = ("--quantization", quantization, "--fp8-gemm-backend", "flashinfer_cutlass")
    deployment = _commanded(release, gpu, "--model-path", "Llama-3.1-8B", *chosen)
    found = {(one.op, one.runner) for one in expected_keys(deployment)}
    assert deployment.server.tunes and not unplanned(deployment)
    assert found == ({(op, runner)} if op else set())


def test_skipped_ops_are_not_planned() -> None:
    flags: dict[str, Any] = {"model_path": in_modelopt("Qwen3-30B-A3B", "NVFP4")}
    whole = {one.op for one in expected_keys(resolve_deployment(ServerFlags(**TARGET, **flags), environ={}))}
    left = {
        one.op
        for one in expected_keys(
            resolve_deployment(ServerFlags(**TARGET, **flags, skip_ops=["fp4_gemm"]), environ={})
        )
    }
    assert whole - left == {"fp4_gemm"} and left


def test_a_shared_expert_behind_each_ranks_own(tmp_path: Path) -> None:
    """Qwen3-Next's, of 512 and ten a token."""
    (tmp_path / "config.json").write_text(json.dumps(published()["Qwen/Qwen3-Next-80B-A3B-Instruct"].config))
    flags = {"model_path": str(tmp_path), "tp": 4, "moe_runner_backend": "flashinfer_cutlass"}
    for ep, local in ((1, 513), (4, 129)):
        deployment = resolve_deployment(ServerFlags(**TARGET, **flags, ep=ep), environ={})
        (first, _) = expected_keys(deployment)
        assert f"({local}, " in first.keys[0] and "torch.bfloat16, 11, " in first.keys[0]
        assert cannot_tune(make_plan(deployment, gpus=())) is None
    sent = {"dp": 4, "enable_dp_attention": True, "moe_a2a_backend": "flashinfer"}
    deployment = resolve_deployment(ServerFlags(**TARGET, **flags, **sent), environ={})
    (first, _) = expected_keys(deployment)
    assert "(129, " in first.keys[0] and "torch.bfloat16, 11, " in first.keys[0]
    assert "behind each rank's routed ones" in str(cannot_tune(make_plan(deployment, gpus=())))


@pytest.mark.parametrize(
    ("section", "version", "are_planned"),
    [
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "0.5.19", True),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "0.5.18", False),  # ends at its shared experts
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "0.5.16", False),
        (None, "0.5.17", False),  # the server's own --quantization, after what latents fold by was made
        ({}, "0.5.17", False),  # the checkpoint's blocks, which are made bf16
    ],
)
def test_what_latents_fold_by_in_fp8_is_planned(
    section: dict[str, Any] | None, version: str, are_planned: bool, tmp_path: Path
) -> None:
    flags = {"quantization": "modelopt_fp8"} if section is None else {}
    deployment = _deepseek(tmp_path, section, version, **flags)
    assert _folds_in_fp8(deployment) is are_planned and not unplanned(deployment)


@pytest.mark.parametrize(("left_out", "are_planned"), [(0, True), (1, True), (61, False)])
def test_one_layer_that_folds_in_fp8_is_enough(left_out: int, are_planned: bool, tmp_path: Path) -> None:
    plain = [f"model.layers.{layer}.self_attn*" for layer in range(left_out)]
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": plain}
    assert _folds_in_fp8(_deepseek(tmp_path, section, "0.5.19")) is are_planned


def _deepseek(folder: Path, section: dict[str, Any] | None, version: str, **flags: Any) -> Deployment:
    config = next(dict(preset.config) for preset in presets() if preset.name == "DeepSeek-V3")
    config["quantization_config"] = section or config["quantization_config"]
    if section is None:
        del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    target = {**TARGET, "flashinfer_version": None, "sglang_version": version, **flags}
    asked = ServerFlags(model_path=str(folder), tp=8, moe_runner_backend="flashinfer_trtllm", **target)
    return resolve_deployment(asked, environ={})


def _folds_in_fp8(deployment: Deployment) -> bool:
    keys = [key for op in expected_keys(deployment) if op.op == "fp8_gemm" for key in op.keys]
    return any("(16, 128, 512)" in key for key in keys) and any("(16, 512, 128)" in key for key in keys)
