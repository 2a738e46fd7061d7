"""What is planned and cannot be tuned here: the runtime's layers are fewer than the keys that are known."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.call_rules import fuses_in_call, has_loose_experts
from runtime.server.gpus import CPU
from runtime.server.own_layer import drafting
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.call_shapes import shares_on_every_rank, tunes_moe
from sgl_tune.keys.dense_shapes import fp4_is_known
from sgl_tune.keys.expert_calls import MXFP4_BESIDE_FP8, rows_of_mxfp4, runs_mxfp4_by_cutlass, weights_of
from sgl_tune.keys.plan import Plan

# As runtime/layers/quantization.py and moe/ have them; tests hold the two against each other.
_METHODS = (None, "fp8", "modelopt_fp8", "modelopt_fp4", "nvfp4", "mxfp4")
_NVFP4_GROUP = 16
_SENT_BY = ("none", "flashinfer")
_FP4_GEMMS = ("flashinfer_cutedsl", "flashinfer_cutlass", "flashinfer_cudnn")
_CUTLASS_KINDS = (None, "modelopt_fp8")
_TRTLLM_KINDS = ("bfloat16", "fp8", "modelopt_fp4", "nvfp4")


def cannot_tune(plan: Plan) -> str | None:
    """Why a warm of this plan would end in an error; None where it would not, or where nothing is planned."""
    if not plan.caches:
        return None
    deployments = [plan.deployment]
    draft = plan.deployment.draft_deployment
    if draft is not None and len(plan.caches) > 1:
        deployments.append(draft)
    return next((why for deployment in deployments for why in _obstacles(deployment)), None)


def _cuts(deployment: Deployment) -> Iterator[str]:
    """Blocks of experts and of MLPs that two ranks would have to share: SGLang ends at them."""
    model, parallel, block = deployment.model, deployment.parallel, deployment.model.quantization_block
    if block is None or model.checkpoint_quantization != "fp8":
        return
    dense = [layer for layer, kind in enumerate(model.layer_kinds) if kind == "dense"]
    sizes = {model.mlp_size(layer) // parallel.tp for layer in dense}
    for moe in model.moes:
        sizes |= {moe.intermediate_size // parallel.moe_tp, moe.shared_intermediate_size // parallel.tp}
    wrong = sorted(size for size in sizes if size % block[0])
    if wrong:
        yield f"a rank has {wrong[0]} rows of a matrix, no multiple of {block[0]}: SGLang ends at a cut block"


def _obstacles(deployment: Deployment) -> Iterator[str]:
    if deployment.shape.model is None:
        yield deployment.shape.unknown
        return
    model, server = deployment.model, deployment.server
    backend, method = server.backend, server.quantization or model.checkpoint_quantization
    if server.is_draft and drafting(model, deployment.runtime).streams is not None:
        yield f"{model.model_type} with drafts: how they mix its streams is not known here"
    yield from (*model.obstacles, *model.uncomputed, *_cuts(deployment))
    if method not in _METHODS:
        yield f"this runtime has no layers of quantization {method}"
    if fp4_is_known(deployment) and server.fp4_gemm_backend not in _FP4_GEMMS:
        yield f"this runtime has no nvfp4 GEMMs of {server.fp4_gemm_backend}"
    if deployment.arch == CPU.arch or model.moe is None or has_loose_experts(model, method):
        return
    if shares_on_every_rank(deployment) and not fuses_in_call(model, deployment.runtime):
        yield "this runtime keeps a shared expert apart where SGLang has it behind each rank's routed ones"
    if server.moe_a2a_backend not in _SENT_BY:
        yield f"this runtime sends no rows by {server.moe_a2a_backend}: it knows what that takes alone"
    if backend.stood_in and server.gpu.major not in backend.own_majors and tunes_moe(deployment):
        yield f"this runtime has no kernels of {backend.name}"
    if weights_of(deployment) == MXFP4_BESIDE_FP8 and not runs_mxfp4_by_cutlass(deployment):
        yield "this runtime has experts in mxfp4 beside fp8 on flashinfer_mxfp4 of sm90 alone"
    if runs_mxfp4_by_cutlass(deployment) and rows_of_mxfp4(deployment) == "fp8":
        yield f"this runtime gives {backend.name} rows in bf16, not in fp8"
    block = model.quantization_block if method == "fp8" else None
    for width in (moe.intermediate_size // deployment.parallel.moe_tp for moe in model.moes):
        if block and width % block[0]:
            yield f"this runtime splits fp8 experts by blocks of {block[0]}, and a rank's are {width} wide"
        if method == "modelopt_fp4" and width % _NVFP4_GROUP:
            yield f"this runtime splits nvfp4 experts by {_NVFP4_GROUP}, and a rank's are {width} wide"
    if backend.calls == "cutlass" and tunes_moe(deployment) and method not in _CUTLASS_KINDS:
        yield f"this runtime calls {backend.name} plain and in modelopt_fp8, not in {method}"
    if backend.calls == "trtllm" and not model.gated_mlps:
        yield f"this runtime calls {backend.name} with gated experts alone"
    if model.moe.weighs_input and backend.calls == "trtllm":
        yield f"this runtime calls {backend.name} with experts whose answers are weighted, not their rows"
    if model.moe.expert_bias and backend.calls == "trtllm":
        yield f"SGLang passes no expert biases to {backend.name}"
    if backend.calls == "trtllm":
        in_blocks = method != "fp8" or model.quantization_block is not None
        kind = server.dtype if method is None else method
        if kind not in _TRTLLM_KINDS or not in_blocks:
            yield f"this runtime calls {backend.name} in bf16, in fp8 blocks and in nvfp4, not in {kind}"
