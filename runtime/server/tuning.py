"""When a server runs FlashInfer's autotuner at its start."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.choices import Choices

_MOE_TUNED = (
    *("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_mxfp4", "flashinfer_cutedsl"),
    *("flashinfer_cutlass", "flashinfer_megamoe"),
)


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
    if c.moe_runner_backend in _MOE_TUNED:
        return Gate(True, f"MoE backend {c.moe_runner_backend}")
    if c.model_quantization in ("modelopt", "modelopt_fp8") and c.gpu.major in (9, 10, 12):
        return Gate(True, f"dense fp8 GEMMs of quantization {c.model_quantization}")
    return Gate(False, f"MoE backend {c.moe_runner_backend}, quantization {c.model_quantization}")
