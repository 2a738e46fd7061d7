"""Whether a server tunes, target and draft, on every side of each release's switch."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.gpus import find_gpu
from runtime.server.releases import RELEASES, Release
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from runtime.server.tuning import runs_mxfp8_gemm
from tests.server.asking import FP8, MODELOPT_FP8, NVFP4, model, server

_MXFP8 = {"quantization": "mxfp8", "moe_runner_backend": "cutlass"}


@pytest.mark.parametrize(
    ("backend", "since"),
    [
        ("flashinfer_trtllm", 12),
        ("flashinfer_mxfp4", 12),
        ("flashinfer_cutlass", 13),
        ("flashinfer_trtllm_routed", 13),
        ("triton", None),
        ("deep_gemm", None),
        ("marlin", None),
        ("auto", None),
    ],
)
def test_a_moe_backend_tunes_since(backend: str, since: int | None) -> None:
    tuning = [v for v in range(12, 24) if server("qwen3_moe", v, "H200", moe_runner_backend=backend).tunes]
    assert tuning == list(range(since or 24, 24))


def test_the_backend_is_asked_for_and_not_the_experts() -> None:
    found = server("llama", gpu="H200", moe_runner_backend="flashinfer_cutlass")
    assert found.tunes and found.tunes_because == "MoE backend flashinfer_cutlass"


def _tuning(checkpoint: Checkpoint | str, gpu: str, **asked: Any) -> list[int]:
    return [version for version in range(12, 24) if server(checkpoint, version, gpu, **asked).tunes]


ALL = list(range(12, 24))


@pytest.mark.parametrize(
    ("gpu", "asked", "tuning"),
    [
        ("B200", {}, ALL[1:]),
        ("GB300", {}, ALL[1:]),
        ("RTX PRO 6000", {}, ALL[1:]),
        ("H200", {}, []),
        ("H200", {"fp4_gemm_runner_backend": "flashinfer_cutlass"}, ALL[1:]),
        ("H200", {"fp4_gemm_runner_backend": "flashinfer_cutedsl"}, ALL[1:]),
        ("B200", {"fp4_gemm_runner_backend": "flashinfer_cudnn"}, []),
        ("B200", {"fp4_gemm_runner_backend": "marlin"}, []),
        ("B200", {"disable_flashinfer_autotune": True}, []),
        ("B200", {"enable_deterministic_inference": True}, [13, 14, 15, 16, 17]),
        ("B200", {"rl_on_policy_target": "fsdp"}, [13, 14, 15, 16, 17]),
    ],
)
def test_fp4_gemms(gpu: str, asked: dict[str, Any], tuning: list[int]) -> None:
    assert _tuning(model("llama", NVFP4), gpu, **asked) == tuning


@pytest.mark.parametrize(
    ("gpu", "tuning"),
    [("B200", ALL[2:]), ("GB300", ALL[2:]), ("H200", ALL[6:]), ("RTX PRO 6000", ALL[6:]), ("L40S", [])],
)
def test_modelopts_fp8_gemms(gpu: str, tuning: list[int]) -> None:
    assert _tuning(model("llama", MODELOPT_FP8), gpu) == tuning


@pytest.mark.parametrize("checkpoint", [model("llama"), model("qwen3", FP8), model("minimax", FP8)])
def test_plain_and_block_fp8_weights_open_no_gate(checkpoint: Checkpoint) -> None:
    assert _tuning(checkpoint, "B200") == []


_CHOSEN = [14, 15, 16, 17]  # a chosen backend alone opened it


def test_block_fp8_that_runs_as_mxfp8_is_tuned_since_0_5_23() -> None:
    fine = {"quant_method": "fp8", "weight_block_size": [1, 32], "scale_fmt": "ue8m0"}
    chosen = {"fp8_gemm_runner_backend": "flashinfer_cutedsl"}
    since = [*_CHOSEN, 23]
    assert _tuning(model("qwen3", fine), "B200", fp8_gemm_runner_backend="flashinfer_cutlass") == since
    assert _tuning(model("qwen3", fine), "B200", **chosen)[-1:] == [23]
    for asked in ({}, {"fp8_gemm_runner_backend": "deep_gemm"}):
        assert _tuning(model("qwen3", fine), "B200", **asked) == []
    v41 = model("deepseek_v4", {**fine, "weight_block_size": [32, 32]}, model_type="deepseek_v41")
    for gpu, tuned in (("B200", True), ("RTX PRO 6000", False)):
        assert server(v41, 23, gpu, moe_runner_backend="marlin").tunes == tuned
    assert _tuning(model("qwen3", fine), "H200", **chosen) == []
    assert _tuning(model("qwen3", {**fine, "scale_fmt": "float"}), "B200", **chosen) == []
    assert _tuning(model("qwen3", {**fine, "weight_block_size": [32, 128]}), "B200", **chosen) == []


def test_a_chosen_fp8_gemm_opened_the_gate_from_0_5_14_to_0_5_17() -> None:
    chosen = {"fp8_gemm_runner_backend": "flashinfer_cutlass"}
    assert _tuning(model("qwen3", FP8), "H200", **chosen) == [14, 15, 16, 17]
    assert _tuning("qwen3", "H200", **chosen) == [14, 15, 16, 17]
    assert _tuning(model("qwen3", FP8), "H200", fp8_gemm_runner_backend="cutlass") == []


@pytest.mark.parametrize(
    ("gpu", "asked", "tuning"),
    [
        # sm100's default GEMM was CUTLASS from 0.5.15 on, and 0.5.15 alone leaves mxfp8 out
        ("B200", _MXFP8, [16, 17, *ALL[6:]]),
        ("RTX PRO 6000", _MXFP8, ALL[6:]),
        ("H200", _MXFP8, []),
        ("B200", {**_MXFP8, "fp8_gemm_runner_backend": "triton"}, ALL[6:]),
        ("B200", {**_MXFP8, "fp8_gemm_runner_backend": "deep_gemm"}, []),
        ("H200", {**_MXFP8, "fp8_gemm_runner_backend": "flashinfer_cutlass"}, [14, 16, 17]),
    ],
)
def test_mxfp8_gemms(gpu: str, asked: dict[str, Any], tuning: list[int]) -> None:
    assert _tuning("qwen3", gpu, **asked) == tuning


def test_mixed_weights_open_both_gates() -> None:
    layers = {"a": {"quant_algo": "NVFP4"}}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert _tuning(model("llama", mixed), "B200") == ALL[3:]
    assert _tuning(model("llama", mixed), "H200") == ALL[6:]


def test_cutedsl_behind_deepep_is_not_tuned() -> None:
    asked = {"tp_size": 8, "moe_runner_backend": "flashinfer_cutedsl"}
    experts = model("deepseek", NVFP4)
    assert server(experts, 20, **asked).tunes
    assert not server(experts, 20, **asked, moe_a2a_backend="deepep").tunes


@pytest.mark.parametrize(("gpu", "tunes"), [("L40S", False), ("A100 80GB", False), ("H100", True)])
def test_tuning_starts_at_capability_nine(gpu: str, tunes: bool) -> None:
    assert server("qwen3_moe", gpu=gpu, moe_runner_backend="flashinfer_cutlass").tunes is tunes


def _drafts(version: int, checkpoint: Checkpoint, **asked: Any) -> bool:
    found = server(checkpoint, version, speculative_algorithm="EAGLE", **asked).draft
    assert found is not None
    return found.tunes


def test_a_draft_tunes_since_0_5_15() -> None:
    assert [v for v in ALL if _drafts(v, model("deepseek", FP8))] == ALL[3:]


def test_a_draft_is_asked_for_its_own_backend_since_0_5_17() -> None:
    other = {"speculative_moe_runner_backend": "triton"}
    assert [v for v in ALL if _drafts(v, model("deepseek", FP8), **other)] == [15, 16]
    own = {"moe_runner_backend": "triton", "speculative_moe_runner_backend": "flashinfer_trtllm"}
    assert [v for v in ALL if _drafts(v, model("deepseek", FP8), **own)] == ALL[5:]


def test_a_draft_is_asked_for_its_own_all_to_all() -> None:
    asked = {"tp_size": 8, "moe_runner_backend": "flashinfer_cutedsl", "moe_a2a_backend": "deepep"}
    assert not _drafts(23, model("deepseek", NVFP4), **asked)
    assert _drafts(23, model("deepseek", NVFP4), **asked, speculative_moe_a2a_backend="none")


def test_a_drafts_gemms_are_those_of_its_own_weights() -> None:
    asked = {"gpu": "B200", "speculative_algorithm": "EAGLE3"}
    plain, packed = model("eagle3"), model("eagle3", NVFP4)
    on_packed = server(model("llama", NVFP4), 23, draft=plain, **asked)
    assert on_packed.tunes and on_packed.draft is not None and not on_packed.draft.tunes
    under_plain = server("llama", 23, draft=packed, **asked)
    assert not under_plain.tunes and under_plain.draft is not None and under_plain.draft.tunes


@pytest.mark.parametrize(
    ("method", "asked", "gpu", "since"),
    [
        ("mxfp8", "auto", "B200", 18),
        ("mxfp8", "auto", "RTX PRO 6000", 18),
        ("minimax_m3_nvfp4", "auto", "B200", 23),
        ("mxfp8", "deep_gemm", "B200", None),
        ("mxfp8", "auto", "H200", None),
        ("fp8", "auto", "B200", None),
    ],
)
def test_mxfp8_gemms_are_flashinfers(method: str, asked: str, gpu: str, since: int | None) -> None:
    runs = [one.number[2] for one in RELEASES if runs_mxfp8_gemm(method, asked, find_gpu(gpu), one)]
    assert runs == ([one for one in range(since, 24)] if since else [])


def _under(release: Release, **environ: str) -> Server:
    return resolve(Asked(model_path="org/m"), model("qwen3_moe"), None, find_gpu("H200"), release, environ)


def test_what_the_environment_may_turn_on_by_release() -> None:
    said = {"SGLANG_FLASHINFER_AUTOTUNE_EXTEND": "1", "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": "yes"}
    asked, unasked = ([_under(one, **told) for one in RELEASES] for told in (said, {}))
    assert [one.release.number[2] for one in asked if one.autotune_extend] == [18, 19, 20, 21, 22, 23]
    assert all(one.fused_finalize for one in asked) and not any(one.autotune_extend for one in unasked)
    finalizing = [one.release.number[2] for one in unasked if one.fused_finalize]
    assert finalizing == [12, 13, 14, 15, 16, 17, 18, 19, 20]
