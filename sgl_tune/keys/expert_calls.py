"""How a server's experts are stored, and whether all of its layers make one known call of the MoE backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.server.backends import Calls
from runtime.server.checkpoint import Checkpoint
from runtime.server.expert_weights import has_fp4_experts, has_nvfp4_experts
from runtime.server.tuning import MODELOPT_FP8
from sgl_tune.keys.packed_experts import (
    METHOD,
    packed_calls_are_known,
    packed_weights,
    runs_by_cutlass,
    runs_by_its_own,
)

if TYPE_CHECKING:
    from runtime.server.shape import Server
    from sgl_tune.deployment.deployment import Deployment

MXFP4_BESIDE_FP8, NVFP4_BESIDE_FP8 = "mxfp4 beside fp8", "nvfp4 beside fp8"
STATIC_FP8 = "fp8 with scales for activations"  # of each matrix, in the checkpoint
FP4_TILE = 128
# Rows so wide, a few at a time, are left for a later kernel to finish: models/deepseek_v2.py since 0.5.21.
_LEFT_UNFINISHED = 5120
_ONE_LAYER_MORE = ("EAGLE", "NEXTN")
# They run no experts by kernels of any backend: w4afp8.py, bitsandbytes.py of srt/layers/quantization.
_BY_THEIR_OWN = ("w4afp8", "bitsandbytes")
FP8_METHODS, HAVE_NO_FP8 = ("fp8", "mxfp8"), ("cutlass", "cutedsl")
# Backends that choose experts themselves: later where they run them alone.
_CHOOSE, _CHOICE_BY_KERNELS = ("flashinfer_trtllm", "flashinfer_mxfp4"), (0, 5, 23)


def checkpoint_of(deployment: Deployment) -> Checkpoint:
    inputs = deployment.inputs
    return (deployment.server.is_draft and inputs.draft_checkpoint) or inputs.checkpoint


def weights_of(deployment: Deployment) -> str | None:
    """As the MoE backends tell them apart. ModelOpt leaves those of the layer that drafts as they were."""
    checkpoint = checkpoint_of(deployment)
    if deployment.quantization == METHOD:
        return packed_weights(deployment.model.quantized.experts, checkpoint, deployment.server.gpu.major)
    if deployment.quantization != "fp8":
        return deployment.quantization
    if _has_nvfp4_beside_fp8(deployment) and not deployment.server.is_draft:
        return NVFP4_BESIDE_FP8
    if has_fp4_experts(checkpoint):
        return MXFP4_BESIDE_FP8
    if _has_static_scales(deployment):
        return STATIC_FP8
    return "fp8 without blocks" if deployment.model.quantization_block is None else "fp8"


def calls_of(deployment: Deployment) -> Calls | None:
    """The MoE backend's, but where the weights bring their own."""
    by_cutlass = runs_by_cutlass(weights_of(deployment), deployment.server)
    return "cutlass" if by_cutlass else deployment.server.backend.calls


def calls_cutlass(deployment: Deployment) -> bool:
    """FlashInfer's, whichever the weights are."""
    return calls_of(deployment) == "cutlass" or runs_mxfp4_by_cutlass(deployment)


def runs_by_own_kernels(deployment: Deployment) -> bool:
    """A method's, of which FlashInfer tunes nothing, whatever --moe-runner-backend says."""
    server, weights = deployment.server, weights_of(deployment)
    if leaves_choice_to_others(deployment):
        return False
    if server.backend.calls == "mxfp4" and weights is None:
        return True
    if (server.backend.calls == "mxfp4" or server.backend.routed) and weights in MODELOPT_FP8:
        return True
    if server.backend.calls == "cutedsl" and weights in (None, *MODELOPT_FP8):
        return deployment.parallel.moe_ep == 1  # else its rows are numbered for CuTe DSL's experts
    return weights in _BY_THEIR_OWN or runs_by_its_own(weights, server)


def leaves_choice_to_others(deployment: Deployment) -> bool:
    """To the backend's kernels, whichever run: srt/layers/moe/topk.py."""
    server = deployment.server
    return server.moe_runner_backend in _CHOOSE and server.release.number < _CHOICE_BY_KERNELS


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
    if server.backend.calls == "trtllm" and _moves_choices(server):
        return False
    if not packed_calls_are_known(weights, model, server, deployment.parallel.moe_ep):
        return False
    if model.compressed is None:
        return weights != MXFP4_BESIDE_FP8
    if weights != MXFP4_BESIDE_FP8:
        return server.backend.routed and not server.is_draft
    by_method = server.backend.calls == "mxfp4" or _has_nvfp4_beside_fp8(deployment)
    same = not server.is_draft or _is_one_layer_more(deployment)
    return by_method and same and model.hidden_size != _LEFT_UNFINISHED


def _moves_choices(server: Server) -> bool:
    """TRT-LLM's kernels that choose experts know no copies; that experts lie elsewhere they are not told
    before 0.5.23, where some are given choices then."""
    if server.runtime.placement is None:
        return False
    return bool(server.asked.ep_num_redundant_experts) or server.release.moves_trtllms_choices


def _is_one_layer_more(deployment: Deployment) -> bool:
    speculative = deployment.server.speculative
    return speculative is not None and speculative.algorithm in _ONE_LAYER_MORE
