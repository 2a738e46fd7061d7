"""When a server runs FlashInfer's autotuner at its start."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.backends import backend_row
from runtime.server.choices import Choices
from runtime.server.releases import Release

MODELOPT_FP8 = ("modelopt", "modelopt_fp8")


@dataclass(frozen=True, slots=True)
class Gate:
    """`tunes`, and the condition that said so."""

    tunes: bool
    because: str


def gate(c: Choices, draft: bool = False) -> Gate:
    if c.disable_flashinfer_autotune:
        return Gate(False, "--disable-flashinfer-autotune: this server tunes nothing and loads no cache")
    if c.gpu.arch != "cpu" and c.gpu.major < 9:
        return Gate(False, f"SGLang tunes from compute capability 9.0 on: not on {c.gpu.arch}")
    if is_tuned(c.moe_runner_backend, c.release):
        return Gate(True, f"MoE backend {c.moe_runner_backend}")
    if c.model_quantization in MODELOPT_FP8 and c.gpu.major in fp8_gemm_majors(c.release):
        return Gate(True, f"dense fp8 GEMMs of quantization {c.model_quantization}")
    return Gate(False, f"MoE backend {c.moe_runner_backend}, quantization {c.model_quantization}")


def is_tuned(moe_runner_backend: str, release: Release) -> bool:
    since = backend_row(moe_runner_backend).tuned_since
    return since is not None and release.number >= since


def fp8_gemm_majors(release: Release) -> tuple[int, ...]:
    return (9, 10, 12) if release.tunes_fp8_gemm else (10,)
