"""Which tuned MoE ops an SGLang server calls, and with which sizes: by backend, quantization and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from runtime.server.backends import Calls
from runtime.server.call_rules import (
    Routing,
    fused_shared_experts,
    fuses_behind_gate,
    has_loose_experts,
    routing_form,
)
from runtime.server.checkpoint import Checkpoint
from runtime.server.flashinfer import flashinfer_of
from runtime.server.gpus import CPU
from runtime.server.tuning import (
    MODELOPT_FP8,
    is_tuned,
)
from sgl_tune.keys.op_shapes import (
    Dtype,
    Experts,
    OpShape,
    cpu_moe,
    cutlass_moe,
    trtllm_bf16_moe,
    trtllm_fp8_block_moe,
    trtllm_fp8_tensor_moe,
    trtllm_mxfp4_moe,
    trtllm_nvfp4_moe,
)

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_E4M3, _BF16 = Dtype("torch.float8_e4m3fn"), Dtype("torch.bfloat16")


def tunes_moe(deployment: Deployment) -> bool:
    server = deployment.server
    fp8 = server.backend.calls == "cutlass" and deployment.quantization == "fp8"
    elsewhere = fp8 and server.release.runs_fp8_experts_elsewhere
    tuned = is_tuned(server.moe_runner_backend, server.release) and not elsewhere
    return server.tunes and tuned and _has_experts(deployment)


def _has_experts(deployment: Deployment) -> bool:
    model = deployment.model
    return model.num_moe_layers > 0 and not has_loose_experts(model, deployment.quantization)


def checkpoint_of(deployment: Deployment) -> Checkpoint:
    inputs = deployment.inputs
    return (deployment.server.is_draft and inputs.draft_checkpoint) or inputs.checkpoint


def moe_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    if not tunes_moe(deployment):
        return ()
    if deployment.arch == CPU.arch:
        return cpu_moe(_experts(deployment), dtype_of(deployment))
    builder = _MOE_CALLS.get((deployment.server.backend.calls, _weights(deployment)))
    return builder(deployment) if builder and not _shares_otherwise(deployment) else ()


def _shares_otherwise(deployment: Deployment) -> bool:
    """Each rank has the shared expert behind its own routed ones: no call of the runtime's."""
    spread = deployment.server.moe_a2a_backend != "none" or deployment.parallel.ep > 1
    return spread and fuses_behind_gate(deployment.model, deployment.runtime)


def has_kernels(deployment: Deployment) -> bool:
    """FlashInfer, of the MoE backend, for this GPU."""
    majors = deployment.server.backend.kernel_majors
    return not majors or deployment.server.gpu.major in majors


def _weights(deployment: Deployment) -> str | None:
    """How the experts' weights are stored, as the MoE backends tell them apart."""
    if deployment.quantization == "fp8" and deployment.model.quantization_block is None:
        return "fp8 without blocks"
    return deployment.quantization


def dtype_of(deployment: Deployment) -> Dtype:
    return Dtype(f"torch.{deployment.server.dtype}")


def _experts(deployment: Deployment, multiple: int = 1) -> Experts:
    model, parallel = deployment.model, deployment.parallel
    assert model.moe is not None
    shared = fused_shared_experts(model, deployment.runtime, parallel.moe_ep)
    total = model.moe.num_experts + shared
    return Experts(
        hidden=model.moe.latent_size or model.hidden_size,
        intermediate=_round_up(model.moe.intermediate_size // parallel.moe_tp, multiple),
        local=total // parallel.moe_ep,
        total=total,
        top_k=model.moe.top_k + shared,
        tp=parallel.moe_tp,
        ep=parallel.moe_ep,
        gated=model.gated_mlps,
    )


def _by_gate(deployment: Deployment, gated: int, plain: int) -> int:
    return gated if deployment.model.gated_mlps else plain


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _cutlass(deployment: Deployment) -> tuple[OpShape, ...]:
    dtype, quantized = dtype_of(deployment), deployment.quantization in MODELOPT_FP8
    stored = _E4M3 if quantized else dtype
    experts = _experts(deployment, multiple=16 if quantized else 1)
    return _cutlass_call(deployment, experts, activation=stored, weight=stored)


def _cutlass_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """Sixteen values in an int64, of rows padded to a tile of scales where there is no gate."""
    experts = _experts(deployment, multiple=_by_gate(deployment, 1, 128))
    return _cutlass_call(deployment, experts, activation=_BF16, weight=Dtype("torch.int64"), packed=16)


def _cutlass_call(
    deployment: Deployment, experts: Experts, *, activation: Dtype, weight: Dtype, packed: int = 1
) -> tuple[OpShape, ...]:
    return cutlass_moe(
        experts,
        flashinfer_of(deployment.flashinfer_version).keys,
        activation=activation,
        weight=weight,
        output=_BF16 if packed > 1 else dtype_of(deployment),
        fused_finalize=deployment.server.fused_finalize,
        alltoall=deployment.server.moe_a2a_backend == "flashinfer",
        packed=packed,
    )


def _routing(deployment: Deployment, in_fp8_blocks: bool = False) -> Routing:
    parallel = deployment.parallel
    return routing_form(
        deployment.model, deployment.runtime, in_fp8_blocks, parallel.moe_ep, parallel.attn_dp
    )


def _trtllm_fp8_block(deployment: Deployment) -> tuple[OpShape, ...]:
    routing = _routing(deployment, in_fp8_blocks=True)
    return (trtllm_fp8_block_moe(_experts(deployment, multiple=128), routing),)


def _trtllm_fp8_tensor(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_fp8_tensor_moe(_experts(deployment, multiple=_by_gate(deployment, 16, 128))),)


def _trtllm_bf16(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_bf16_moe(_experts(deployment, multiple=128), _routing(deployment)),)


def _trtllm_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    experts = _experts(deployment, multiple=_by_gate(deployment, 16, 128))
    return (trtllm_nvfp4_moe(experts, _routing(deployment)),)


def _mxfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """Padding: hidden to 256, intermediate to 128. Only Blackwell's kernels take weights in this layout."""
    if deployment.server.gpu.major != 10 or deployment.model.model_type != "gpt_oss":
        return ()
    experts = _experts(deployment, multiple=128)
    padded = Experts(
        _round_up(experts.hidden, 256), experts.intermediate, experts.local, experts.total, experts.top_k
    )
    return (trtllm_mxfp4_moe(padded, output=experts.hidden),)


_MOE_CALLS: dict[tuple[Calls | None, str | None], Callable[[Deployment], tuple[OpShape, ...]]] = {
    ("cutlass", None): _cutlass,
    ("cutlass", "modelopt"): _cutlass,
    ("cutlass", "modelopt_fp8"): _cutlass,
    ("cutlass", "modelopt_fp4"): _cutlass_nvfp4,
    ("trtllm", None): _trtllm_bf16,
    ("trtllm", "fp8"): _trtllm_fp8_block,
    ("trtllm", "modelopt_fp8"): _trtllm_fp8_tensor,
    ("trtllm", "modelopt_fp4"): _trtllm_nvfp4,
    ("mxfp4", "mxfp4"): _mxfp4,
}
