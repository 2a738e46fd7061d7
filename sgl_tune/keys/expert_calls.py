"""How a server's experts are stored, and whether all of its layers make one known call of the MoE backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.server.checkpoint import Checkpoint
from runtime.server.expert_weights import has_fp4_experts, has_nvfp4_experts

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

MXFP4_BESIDE_FP8, NVFP4_BESIDE_FP8 = "mxfp4 beside fp8", "nvfp4 beside fp8"
STATIC_FP8 = "fp8 with scales for activations"  # of each matrix, in the checkpoint
FP4_TILE = 128
# Rows so wide, a few at a time, are left for a later kernel to finish: models/deepseek_v2.py since 0.5.21.
_LEFT_UNFINISHED = 5120
_ONE_LAYER_MORE = ("EAGLE", "NEXTN")


def checkpoint_of(deployment: Deployment) -> Checkpoint:
    inputs = deployment.inputs
    return (deployment.server.is_draft and inputs.draft_checkpoint) or inputs.checkpoint


def weights_of(deployment: Deployment) -> str | None:
    """As the MoE backends tell them apart. ModelOpt leaves those of the layer that drafts as they were."""
    checkpoint = checkpoint_of(deployment)
    if deployment.quantization != "fp8":
        return deployment.quantization
    if _has_nvfp4_beside_fp8(deployment) and not deployment.server.is_draft:
        return NVFP4_BESIDE_FP8
    if has_fp4_experts(checkpoint):
        return MXFP4_BESIDE_FP8
    if _has_static_scales(deployment):
        return STATIC_FP8
    return "fp8 without blocks" if deployment.model.quantization_block is None else "fp8"


def _has_static_scales(deployment: Deployment) -> bool:
    kind = deployment.model.quantized.experts
    told = deployment.model.checkpoint_quantization == "fp8" and kind is not None
    return told and kind is not None and (kind.name, kind.per, kind.is_static) == ("fp8", "tensor", True)


def _has_nvfp4_beside_fp8(deployment: Deployment) -> bool:
    return deployment.server.release.reads_nvfp4_beside_fp8 and has_nvfp4_experts(checkpoint_of(deployment))


def runs_mxfp4_by_cutlass(deployment: Deployment) -> bool:
    server, release = deployment.server, deployment.server.release
    beside = weights_of(deployment) == MXFP4_BESIDE_FP8
    majors = release.fp4_beside_fp8_by_cutlass if beside else release.mxfp4_by_cutlass
    return server.backend.calls == "mxfp4" and server.gpu.major in majors


def rows_of_mxfp4(deployment: Deployment) -> str:
    """--flashinfer-mxfp4-moe-precision: what TRT-LLM's kernels are given, and CUTLASS's on Hopper."""
    return deployment.server.asked.flashinfer_mxfp4_moe_precision


def calls_are_known(deployment: Deployment) -> bool:
    """DeepSeek-V4's first layers choose by a hash, and the others by scores that no kernel has: they call
    alike where all are given their experts. A draft of several layers may not."""
    model, server, weights = deployment.model, deployment.server, weights_of(deployment)
    if model.compressed is None:
        return weights != MXFP4_BESIDE_FP8
    if weights != MXFP4_BESIDE_FP8:
        return server.backend.routed and not server.is_draft
    by_method = server.backend.calls == "mxfp4" or _has_nvfp4_beside_fp8(deployment)
    same = not server.is_draft or _is_one_layer_more(deployment)
    return by_method and same and model.hidden_size != _LEFT_UNFINISHED


def _is_one_layer_more(deployment: Deployment) -> bool:
    speculative = deployment.server.speculative
    return speculative is not None and speculative.algorithm in _ONE_LAYER_MORE
