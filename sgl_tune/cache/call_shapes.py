"""Which tuned ops an SGLang server calls, and with which sizes: by backend, quantization and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from runtime.config import ModelConfig
from runtime.sizing import release
from sgl_tune.cache.op_shapes import (
    Dtype,
    Experts,
    OpShape,
    Routing,
    cpu_moe,
    cutlass_moe,
    dense_fp8,
    key_form,
    trtllm_bf16_moe,
    trtllm_fp8_block_moe,
    trtllm_fp8_tensor_moe,
    trtllm_mxfp4_moe,
    trtllm_nvfp4_moe,
)
from sgl_tune.cache.tuning_rules import CPU_ARCH, MODELOPT_FP8, tunes_dense, tunes_moe
from sgl_tune.server_rules import DEEPSEEK, arch_major

if TYPE_CHECKING:
    from sgl_tune.deployment import Deployment

_ROUTED_FP8_UNDER_EP_SINCE = (0, 5, 18)
_ROUTING_APART_SINCE = (0, 5, 18)
_UNFINALISED_SINCE = (0, 5, 18)
_UNFINALISED_ROWS = 192
_E4M3 = Dtype("torch.float8_e4m3fn")


def moe_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    if not tunes_moe(deployment):
        return ()
    if deployment.arch == CPU_ARCH:
        return cpu_moe(_experts(deployment), _dtype(deployment))
    builder = _MOE_CALLS.get((deployment.runtime.moe_runner_backend, _weights(deployment)))
    return builder(deployment) if builder and _is_dispatch_known(deployment) else ()


def dense_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    """The attention and dense layers of a modelopt fp8 checkpoint with grouped-query attention."""
    if not tunes_dense(deployment) or deployment.model.is_mla:
        return ()
    linears = dict.fromkeys(_linear_sizes(deployment))
    return tuple(dense_fp8(k, n, _dtype(deployment)) for k, n in linears)


def _is_dispatch_known(deployment: Deployment) -> bool:
    a2a = deployment.runtime.moe_a2a_backend
    return a2a == "none" or (
        a2a == "flashinfer" and deployment.runtime.moe_runner_backend == "flashinfer_cutlass"
    )


def _weights(deployment: Deployment) -> str | None:
    """How the experts' weights are stored, as the MoE backends tell them apart."""
    if deployment.quantization == "fp8" and deployment.model.quantization_block is None:
        return "fp8 without blocks"
    return deployment.quantization


def _dtype(deployment: Deployment) -> Dtype:
    return Dtype(f"torch.{deployment.runtime.dtype}")


def _experts(deployment: Deployment, multiple: int = 1, fused_shared: int = 0) -> Experts:
    model, parallel = deployment.model, deployment.parallel
    assert model.moe is not None
    total = model.moe.num_experts + fused_shared
    return Experts(
        hidden=model.hidden_size,
        intermediate=_round_up(model.moe.intermediate_size // parallel.moe_tp, multiple),
        local=total // parallel.moe_ep,
        total=total,
        top_k=model.moe.top_k + fused_shared,
        tp=parallel.moe_tp,
        ep=parallel.moe_ep,
    )


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _fused_shared_experts(deployment: Deployment) -> int:
    """CUTLASS MoE runs the shared expert of DeepSeek or GLM as a routed one, unless experts are spread."""
    model = deployment.model
    assert model.moe is not None
    fusing = model.model_type in ("deepseek_v3", "glm_moe_dsa", "glm4_moe")
    spread = deployment.parallel.moe_ep > 1 or deployment.runtime.moe_a2a_backend != "none"
    if not fusing or spread or not model.moe.shared_intermediate_size:
        return 0
    return model.moe.shared_intermediate_size // model.moe.intermediate_size


def _cutlass(deployment: Deployment) -> tuple[OpShape, ...]:
    dtype, quantized = _dtype(deployment), deployment.quantization in MODELOPT_FP8
    return cutlass_moe(
        _experts(deployment, fused_shared=_fused_shared_experts(deployment)),
        key_form(deployment.flashinfer_version),
        activation=_E4M3 if quantized else dtype,
        weight=_E4M3 if quantized else dtype,
        output=dtype,
        fused_finalize=deployment.runtime.fused_finalize,
        alltoall=deployment.runtime.moe_a2a_backend == "flashinfer",
    )


def _trtllm_fp8_block(deployment: Deployment) -> tuple[OpShape, ...]:
    experts, version = _experts(deployment, multiple=128), release(deployment.sglang_version)
    spread = deployment.parallel.moe_ep > 1 and not deployment.parallel.enable_dp_attention
    if spread and version >= _ROUTED_FP8_UNDER_EP_SINCE:
        return _trtllm_fp8_block_routed(deployment)
    return (trtllm_fp8_block_moe(experts, "logits"),)


def _trtllm_fp8_block_routed(deployment: Deployment) -> tuple[OpShape, ...]:
    experts = _experts(deployment, multiple=128)
    return tuple(trtllm_fp8_block_moe(experts, routing) for routing in _routed_forms(deployment))


def _routed_forms(deployment: Deployment) -> tuple[Routing, ...]:
    """0.5.17 packs ids and weights, 0.5.23 does not; what lies between is covered both ways."""
    version = release(deployment.sglang_version)
    if version < _ROUTING_APART_SINCE:
        return ("packed",)
    return ("apart",) if version >= (0, 5, 23) else ("apart", "packed")


def _trtllm_fp8_tensor(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_fp8_tensor_moe(_experts(deployment, multiple=128)),)


def _trtllm_bf16(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_bf16_moe(_experts(deployment, multiple=128), "logits"),)


def _trtllm_bf16_routed(deployment: Deployment) -> tuple[OpShape, ...]:
    experts = _experts(deployment, multiple=128)
    return tuple(trtllm_bf16_moe(experts, routing) for routing in _routed_forms(deployment))


def _trtllm_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """With a shared expert beside the routed ones, decode graphs leave finalising to a later kernel."""
    experts = _experts(deployment, multiple=16)
    finalised = trtllm_nvfp4_moe(experts, "logits, buffers")
    if deployment.model.model_type not in DEEPSEEK or release(deployment.sglang_version) < _UNFINALISED_SINCE:
        return (finalised,)
    return (finalised, trtllm_nvfp4_moe(experts, "logits, buffers", unfinalised_rows=_UNFINALISED_ROWS))


def _trtllm_nvfp4_routed(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_nvfp4_moe(_experts(deployment, multiple=16), "apart"),)


def _mxfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """Padding: hidden to 256, intermediate to 128. Only Blackwell's kernels take weights in this layout."""
    if arch_major(deployment.arch) != 10 or deployment.model.model_type != "gpt_oss":
        return ()
    experts = _experts(deployment, multiple=128)
    padded = Experts(
        _round_up(experts.hidden, 256), experts.intermediate, experts.local, experts.total, experts.top_k
    )
    return (trtllm_mxfp4_moe(padded, output=experts.hidden),)


_MOE_CALLS: dict[tuple[str, str | None], Callable[[Deployment], tuple[OpShape, ...]]] = {
    ("flashinfer_cutlass", None): _cutlass,
    ("flashinfer_cutlass", "modelopt"): _cutlass,
    ("flashinfer_cutlass", "modelopt_fp8"): _cutlass,
    ("flashinfer_trtllm", None): _trtllm_bf16,
    ("flashinfer_trtllm", "fp8"): _trtllm_fp8_block,
    ("flashinfer_trtllm", "modelopt_fp8"): _trtllm_fp8_tensor,
    ("flashinfer_trtllm", "modelopt_fp4"): _trtllm_nvfp4,
    ("flashinfer_trtllm_routed", None): _trtllm_bf16_routed,
    ("flashinfer_trtllm_routed", "fp8"): _trtllm_fp8_block_routed,
    ("flashinfer_trtllm_routed", "modelopt_fp4"): _trtllm_nvfp4_routed,
    ("flashinfer_mxfp4", "mxfp4"): _mxfp4,
}


def _linear_sizes(deployment: Deployment) -> list[tuple[int, int]]:
    """(K, N) of each kind of linear layer on one rank. Router gates and the LM head stay unquantized."""
    model, parallel = deployment.model, deployment.parallel
    heads = model.num_heads // parallel.attn_tp
    kv_heads = max(1, model.num_kv_heads // parallel.attn_tp)
    sizes = [
        (model.hidden_size, (heads + 2 * kv_heads) * model.head_dim),
        (heads * model.head_dim, model.hidden_size),
    ]
    for width in _mlp_widths(model):
        local = width // parallel.tp
        sizes += [(model.hidden_size, 2 * local), (local, model.hidden_size)]
    return sizes


def _mlp_widths(model: ModelConfig) -> list[int]:
    widths = [model.intermediate_size] if "dense" in model.layer_kinds else []
    if model.moe and model.moe.shared_intermediate_size:
        widths.append(model.moe.shared_intermediate_size)
    return widths
