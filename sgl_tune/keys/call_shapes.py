"""Which tuned ops an SGLang server calls, and with which sizes: by backend, quantization and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from runtime.server.backends import Calls
from runtime.server.call_rules import Routing, fused_shared_experts, routing_form
from runtime.server.config import ModelConfig
from runtime.server.flashinfer import flashinfer_of
from runtime.server.gpus import CPU
from runtime.server.sizing import kv_heads_per_rank
from runtime.server.tuning import (
    MODELOPT_FP8,
    is_tuned,
    runs_block_fp8_as_mxfp8,
    runs_fp4_gemm,
    runs_fp8_gemm,
    runs_mxfp8_gemm,
)
from sgl_tune.keys.op_shapes import (
    Dtype,
    Experts,
    OpShape,
    cpu_moe,
    cutlass_moe,
    dense_fp8,
    trtllm_bf16_moe,
    trtllm_fp8_block_moe,
    trtllm_fp8_tensor_moe,
    trtllm_mxfp4_moe,
    trtllm_nvfp4_moe,
)

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_E4M3 = Dtype("torch.float8_e4m3fn")


def tunes_moe(deployment: Deployment) -> bool:
    server = deployment.server
    return server.tunes and is_tuned(server.moe_runner_backend, server.release) and _has_experts(deployment)


def _has_experts(deployment: Deployment) -> bool:
    return deployment.model.num_moe_layers > 0


def tunes_dense(deployment: Deployment) -> bool:
    """FP8 GEMMs with one scale a tensor, through FlashInfer."""
    server = deployment.server
    return server.tunes and runs_fp8_gemm(deployment.quantization, server.gpu, server.release)


def tunes_fp4(deployment: Deployment) -> bool:
    server = deployment.server
    backend = server.asked.fp4_gemm_runner_backend
    return server.tunes and runs_fp4_gemm(deployment.quantization, backend, server.gpu)


def tunes_mxfp8(deployment: Deployment) -> bool:
    """Of mxfp8 weights, or of fp8 weights that can pass for them."""
    server, inputs, quantization = deployment.server, deployment.inputs, deployment.quantization
    release, backend = server.release, server.asked.fp8_gemm_runner_backend
    model = inputs.draft_checkpoint if server.is_draft and inputs.draft_checkpoint else inputs.checkpoint
    by_default = release.mxfp8_runs_cutlass_gemm and "mxfp8_gemm" not in release.always_skipped_ops
    return server.tunes and (
        runs_mxfp8_gemm(quantization, backend, server.gpu, release)
        or runs_block_fp8_as_mxfp8(quantization, model, backend, server.gpu, release)
        or (by_default and quantization == "mxfp8" and backend == "auto" and server.gpu.major == 10)
    )


def tunes_by_cutlass(deployment: Deployment) -> bool:
    """--fp8-gemm-backend flashinfer_cutlass: quantized GEMMs of other kinds too."""
    server = deployment.server
    asked = server.asked.fp8_gemm_runner_backend == "flashinfer_cutlass"
    return server.tunes and asked and deployment.quantization is not None


def moe_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    if not tunes_moe(deployment):
        return ()
    if deployment.arch == CPU.arch:
        return cpu_moe(_experts(deployment), _dtype(deployment))
    builder = _MOE_CALLS.get((deployment.server.backend.calls, _weights(deployment)))
    known = builder and has_kernels(deployment) and _is_dispatch_known(deployment)
    return builder(deployment) if builder and known else ()


def has_kernels(deployment: Deployment) -> bool:
    """FlashInfer, of the MoE backend, for this GPU."""
    majors = deployment.server.backend.kernel_majors
    return not majors or deployment.server.gpu.major in majors


def dense_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    """The attention and dense layers of a modelopt fp8 checkpoint with grouped-query attention."""
    plain = deployment.quantization in MODELOPT_FP8 and not deployment.model.is_mla
    if not tunes_dense(deployment) or not plain:
        return ()
    linears = dict.fromkeys(_linear_sizes(deployment))
    return tuple(dense_fp8(k, n, _dtype(deployment)) for k, n in linears)


def _is_dispatch_known(deployment: Deployment) -> bool:
    a2a = deployment.server.moe_a2a_backend
    return a2a == "none" or (a2a == "flashinfer" and deployment.server.backend.calls == "cutlass")


def _weights(deployment: Deployment) -> str | None:
    """How the experts' weights are stored, as the MoE backends tell them apart."""
    if deployment.quantization == "fp8" and deployment.model.quantization_block is None:
        return "fp8 without blocks"
    return deployment.quantization


def _dtype(deployment: Deployment) -> Dtype:
    return Dtype(f"torch.{deployment.server.dtype}")


def _experts(deployment: Deployment, multiple: int = 1) -> Experts:
    model, parallel = deployment.model, deployment.parallel
    assert model.moe is not None
    shared = fused_shared_experts(model, deployment.runtime, parallel.moe_ep)
    total = model.moe.num_experts + shared
    return Experts(
        hidden=model.hidden_size,
        intermediate=_round_up(model.moe.intermediate_size // parallel.moe_tp, multiple),
        local=total // parallel.moe_ep,
        total=total,
        top_k=model.moe.top_k + shared,
        tp=parallel.moe_tp,
        ep=parallel.moe_ep,
    )


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _cutlass(deployment: Deployment) -> tuple[OpShape, ...]:
    dtype, quantized = _dtype(deployment), deployment.quantization in MODELOPT_FP8
    return cutlass_moe(
        _experts(deployment),
        flashinfer_of(deployment.flashinfer_version).keys,
        activation=_E4M3 if quantized else dtype,
        weight=_E4M3 if quantized else dtype,
        output=dtype,
        fused_finalize=deployment.server.fused_finalize,
        alltoall=deployment.server.moe_a2a_backend == "flashinfer",
    )


def _routing(deployment: Deployment, in_fp8_blocks: bool = False) -> Routing:
    parallel = deployment.parallel
    return routing_form(deployment.runtime, in_fp8_blocks, parallel.moe_ep, parallel.attn_dp)


def _trtllm_fp8_block(deployment: Deployment) -> tuple[OpShape, ...]:
    routing = _routing(deployment, in_fp8_blocks=True)
    return (trtllm_fp8_block_moe(_experts(deployment, multiple=128), routing),)


def _trtllm_fp8_tensor(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_fp8_tensor_moe(_experts(deployment, multiple=128)),)


def _trtllm_bf16(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_bf16_moe(_experts(deployment, multiple=128), _routing(deployment)),)


def _trtllm_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_nvfp4_moe(_experts(deployment, multiple=16), _routing(deployment)),)


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
    ("trtllm", None): _trtllm_bf16,
    ("trtllm", "fp8"): _trtllm_fp8_block,
    ("trtllm", "modelopt_fp8"): _trtllm_fp8_tensor,
    ("trtllm", "modelopt_fp4"): _trtllm_nvfp4,
    ("mxfp4", "mxfp4"): _mxfp4,
}


def _linear_sizes(deployment: Deployment) -> list[tuple[int, int]]:
    """(K, N) of each kind of linear layer on one rank. Router gates and the LM head stay unquantized."""
    model, parallel = deployment.model, deployment.parallel
    attention, kv_heads = model.main_attention, kv_heads_per_rank(model, parallel)
    heads = attention.num_heads // parallel.attn_tp
    sizes = []
    if _is_quantized(model, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        sizes.append((model.hidden_size, (heads + 2 * kv_heads) * attention.head_dim))
    if _is_quantized(model, "self_attn.o_proj"):
        sizes.append((heads * attention.head_dim, model.hidden_size))
    for mlp, kind, width in _mlps(model):
        local = width // parallel.tp
        if _is_quantized(model, f"{mlp}.gate_proj", f"{mlp}.up_proj", kind=kind):
            sizes.append((model.hidden_size, 2 * local))
        if _is_quantized(model, f"{mlp}.down_proj", kind=kind):
            sizes.append((local, model.hidden_size))
    return sizes


def _is_quantized(model: ModelConfig, *modules: str, kind: str = "") -> bool:
    """In one layer at least."""
    layers = (layer for layer in range(model.num_layers) if kind in ("", model.layer_kinds[layer]))
    return any(
        not model.excluded.linear([f"model.layers.{layer}.{one}" for one in modules]) for layer in layers
    )


def _mlps(model: ModelConfig) -> list[tuple[str, str, int]]:
    widths = [("mlp", "dense", model.intermediate_size)] if "dense" in model.layer_kinds else []
    if model.moe and model.moe.shared_intermediate_size:
        name = "mlp.shared_expert" if model.moe.shared_gate else "mlp.shared_experts"
        widths.append((name, "moe", model.moe.shared_intermediate_size))
    return widths
