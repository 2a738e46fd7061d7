"""When a server runs FlashInfer's autotuner at its start: for its MoE backend, its FP4 or its FP8 GEMMs."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.architectures import MUSE_GLIMMER
from runtime.server.backends import backend_row
from runtime.server.checkpoint import Checkpoint
from runtime.server.choices import Choices
from runtime.server.declared import MIXED
from runtime.server.errors import ConfigError
from runtime.server.expert_weights import is_block_fp8_of_32, is_mxfp8_modelopt
from runtime.server.families import BY_DEEP_GEMM, HYV4
from runtime.server.gpus import CPU, GpuModel
from runtime.server.releases import Release

MODELOPT_FP8 = ("modelopt", "modelopt_fp8")
FP4_METHODS = ("modelopt_fp4", MIXED)
_TUNED_FP4 = ("flashinfer_cutlass", "flashinfer_cutedsl")
_MXFP8_GEMMS = ("flashinfer_cutlass", "flashinfer_cutedsl")
_BLACKWELL = (10, 11, 12)


@dataclass(frozen=True, slots=True)
class Gate:
    """`tunes`, and the condition that said so."""

    tunes: bool
    because: str


def check_skipped_ops(c: Choices) -> None:
    if c.flashinfer_autotune_skip_ops and not c.release.key_has_skipped_ops:
        raise ConfigError(
            f"SGLang {c.release.version} has no --flashinfer-autotune-skip-ops", "leave the skipped ops out"
        )


def gate(c: Choices, quantization: str | None, draft: bool = False) -> Gate:
    """`quantization` is that of the worker's own model."""
    closed = _closed(c, draft)
    if closed:
        return Gate(False, closed)
    backend, a2a = _experts(c, draft)
    if backend == "flashinfer_cutedsl" and a2a == "deepep":
        return Gate(False, "flashinfer_cutedsl's experts behind deepep are not tuned")
    if is_tuned(backend, c.release):
        return Gate(True, f"MoE backend {backend}")
    if c.release.fp4_gemm_gates and tunes_fp4_gemm(quantization, fp4_gemm_backend(c)):
        return Gate(True, f"FP4 GEMMs of quantization {quantization}")
    model = c.draft_model if draft and c.draft_model is not None else c.model
    as_mxfp8 = runs_block_fp8_as_mxfp8(quantization, model, c.fp8_gemm_runner_backend, c.gpu, c.release)
    if (as_mxfp8 and c.release.block_fp8_as_mxfp8_gates) or _tunes_fp8(c, quantization):
        return Gate(True, f"FP8 GEMMs of quantization {quantization}")
    gemms = "unquantized GEMMs" if quantization is None else f"GEMMs of quantization {quantization}"
    return Gate(False, f"SGLang tunes neither MoE backend {backend} nor {gemms}")


def fp4_gemm_backend(c: Choices) -> str:
    """What an unset --fp4-gemm-backend becomes: srt/layers/quantization/fp4_utils.py."""
    if c.fp4_gemm_runner_backend != "auto":
        return str(c.fp4_gemm_runner_backend)
    if c.gpu.major == 12:
        return "marlin" if c.model.architecture in MUSE_GLIMMER else c.release.fp4_gemm_on_sm120
    if c.gpu.major == 10:
        return "flashinfer_cutedsl"
    return c.release.fp4_gemm_before_blackwell if c.gpu.major < 10 else "flashinfer_cutlass"


def fp8_gemm_backend(c: Choices) -> str:
    """What an unset --fp8-gemm-backend becomes, where a rule says: srt/layers/quantization/fp8_utils.py."""
    if c.fp8_gemm_runner_backend != "auto":
        return str(c.fp8_gemm_runner_backend)
    if c.release.mxfp8_runs_cutlass_gemm and c.quantization == "mxfp8" and c.gpu.major == 10:
        return "flashinfer_cutlass"
    return "deep_gemm" if _is_by_deep_gemm(c) else "auto"


def _closed(c: Choices, draft: bool) -> str | None:
    if c.disable_flashinfer_autotune:
        return "--disable-flashinfer-autotune is set, so that it loads no cache either"
    if c.release.deterministic_never_tunes and c.enable_deterministic_inference:
        return "not under --enable-deterministic-inference, nor --rl-on-policy-target"
    if draft and not c.release.tunes_drafts:
        return f"SGLang {c.release.version} tunes no draft"
    if c.gpu.arch != CPU.arch and c.gpu.major < 9:
        return f"SGLang tunes from compute capability 9.0 on: not on {c.gpu.arch}"
    return None


def _experts(c: Choices, draft: bool) -> tuple[str, str]:
    if draft and c.release.drafts_gate_by_their_backend:
        backend = c.speculative_moe_runner_backend or c.moe_runner_backend
        return backend, c.speculative_moe_a2a_backend or c.moe_a2a_backend
    return c.moe_runner_backend, c.moe_a2a_backend


def is_tuned(moe_runner_backend: str, release: Release) -> bool:
    since = backend_row(moe_runner_backend).tuned_since
    return since is not None and release.number >= since


def tunes_fp4_gemm(quantization: str | None, backend: str) -> bool:
    return quantization in FP4_METHODS and backend in _TUNED_FP4


def runs_fp8_gemm(quantization: str | None, gpu: GpuModel, release: Release) -> bool:
    """By FlashInfer: modelopt's, in one scale a tensor."""
    return quantization in (*MODELOPT_FP8, MIXED) and gpu.major in release.fp8_gemm_majors


def runs_mxfp8_gemm(quantization: str | None, asked: str, gpu: GpuModel, release: Release) -> bool:
    """By FlashInfer's mm_mxfp8, unless deep_gemm is asked for."""
    on_blackwell = gpu.major in _BLACKWELL and asked != "deep_gemm"
    return quantization in release.mxfp8_gemm_methods and on_blackwell


def _tunes_fp8(c: Choices, quantization: str | None) -> bool:
    release, backend = c.release, fp8_gemm_backend(c)
    if not release.fp8_gemm_gates or quantization in release.never_by_chosen_fp8_gemm:
        return False
    if release.chosen_fp8_gemm_tunes and backend == "flashinfer_cutlass":
        return True
    by_method = runs_mxfp8_gemm(quantization, backend, c.gpu, release)
    return by_method or runs_fp8_gemm(quantization, c.gpu, release)


def _is_by_deep_gemm(c: Choices) -> bool:
    """srt/arg_groups/model_overrides/deepseek_v2.py"""
    fits = c.model.architecture in HYV4 and c.gpu.major in BY_DEEP_GEMM
    return fits and is_mxfp8_modelopt(c.model)


def runs_block_fp8_as_mxfp8(
    quantization: str | None, model: Checkpoint, asked: str, gpu: GpuModel, release: Release
) -> bool:
    """Where that is asked for, by DeepSeek-V4.1 itself on sm100. SGLang looks at the loaded layers, and a
    config.json tells as much."""
    fits = quantization == "fp8" and is_block_fp8_of_32(model)
    by_itself = asked == "auto" and model.model_type == "deepseek_v41" and gpu.major == 10
    capable = gpu.major in _BLACKWELL and (asked in _MXFP8_GEMMS or by_itself)
    return release.block_fp8_runs_as_mxfp8 and capable and fits
