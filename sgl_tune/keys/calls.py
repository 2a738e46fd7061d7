"""Find the tuned ops that a server's layers call, and their sizes, by MoE backend and quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime.server.backends import Calls
from runtime.server.gpus import CPU
from runtime.server.sizes import call_rules as rules
from runtime.server.sizes.batches import Seen
from runtime.server.sizes.call_rules import Routing
from runtime.server.sizes.linears import Spread, quantized_sizes
from sgl_tune.keys import op_shapes as ops
from sgl_tune.keys.op_shapes import BF16, E4M3, Dtype, Experts, OpShape, Stored, round_up

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def op_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    """Return the ops of experts, then those of dense layers; none if the server tunes nothing."""
    if not deployment.server.tuning.tunes:
        return ()
    return (*_of_experts(deployment), *_of_linears(deployment))


def unknown_experts(deployment: Deployment) -> str | None:
    """Return why the lookups of a server's experts cannot be planned here, or None."""
    if not _tunes_experts(deployment) or deployment.arch == CPU.arch or _of_experts(deployment):
        return None
    return f"{deployment.runtime.kernels.moe} with quantization {deployment.quantization}"


def calls_of(deployment: Deployment) -> Calls | None:
    """Return whose kernels are called: flashinfer_mxfp4 uses TRT-LLM's on sm100, and CUTLASS's elsewhere."""
    calls = deployment.server.backend.calls
    return "cutlass" if calls == "mxfp4" and deployment.server.gpu.major != 10 else calls


def dtype_of(deployment: Deployment) -> Dtype:
    return Dtype(f"torch.{deployment.runtime.dtype}")


def _tunes_experts(deployment: Deployment) -> bool:
    """Whether FlashInfer tunes the experts. Plain gpt-oss weights use SGLang's kernels, not mxfp4's."""
    calls = deployment.server.backend.calls
    own = calls is None or (calls == "mxfp4" and deployment.quantization is None)
    return not own and deployment.server.tuning.tunes and deployment.model.num_moe_layers > 0


def _of_experts(deployment: Deployment) -> tuple[OpShape, ...]:
    if not _tunes_experts(deployment):
        return ()
    if deployment.arch == CPU.arch:
        return ops.cpu_moe(_experts(deployment), dtype_of(deployment))
    if deployment.model.plain_experts is not None:  # SGLang calls another op for them
        return ()
    builder = _MOE_CALLS.get((deployment.server.backend.calls, deployment.quantization))
    return builder(deployment) if builder else ()


def _experts(deployment: Deployment, multiple: int = 1) -> Experts:
    model, parallel = deployment.model, deployment.parallel
    assert model.moe is not None
    shared = rules.fused_shared_experts(model, deployment.runtime, parallel.moe_ep)
    total = model.moe.num_experts + shared
    return Experts(
        hidden=model.moe.latent_size or model.hidden_size,
        intermediate=round_up(model.moe.intermediate_size // parallel.moe_tp, multiple),
        local=total // parallel.moe_ep,
        total=total,
        top_k=model.moe.top_k + shared,
        tp=parallel.moe_tp,
        ep=parallel.moe_ep,
        gated=model.style.gated,
    )


def _routing(deployment: Deployment, in_fp8_blocks: bool = False) -> Routing:
    parallel = deployment.parallel
    return rules.routing_form(
        deployment.model, deployment.runtime, in_fp8_blocks, parallel.moe_ep, parallel.attn_dp
    )


def _called(deployment: Deployment, experts: Experts, stored: Stored) -> tuple[OpShape, ...]:
    alltoall = deployment.runtime.kernels.a2a == "flashinfer"
    return ops.cutlass_moe(experts, stored, alltoall)


def _cutlass(deployment: Deployment) -> tuple[OpShape, ...]:
    dtype = dtype_of(deployment)
    return _called(deployment, _experts(deployment), Stored(dtype, dtype, dtype))


def _cutlass_fp8(deployment: Deployment) -> tuple[OpShape, ...]:
    return _called(deployment, _experts(deployment, 16), Stored(E4M3, E4M3, dtype_of(deployment)))


def _cutlass_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """Return nvfp4 calls of CUTLASS: 16 values in an int64; without a gate, rows are padded to a tile."""
    experts = _experts(deployment, 1 if deployment.model.style.gated else 128)
    stored = Stored(BF16, Dtype("torch.int64"), BF16, packed=16)
    if deployment.runtime.kernels.a2a == "flashinfer":
        stored = replace(stored, rows=Dtype("torch.uint8"), rows_packed=2)
    return _called(deployment, experts, stored)


def _trtllm_bf16(deployment: Deployment) -> tuple[OpShape, ...]:
    return (ops.trtllm_bf16_moe(_experts(deployment, 128), _routing(deployment)),)


def _trtllm_fp8_block(deployment: Deployment) -> tuple[OpShape, ...]:
    if deployment.model.quantized.block != (128, 128):
        return ()
    return (ops.trtllm_fp8_block_moe(_experts(deployment, 128), _routing(deployment, in_fp8_blocks=True)),)


def _trtllm_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    experts = _experts(deployment, 64 if deployment.model.style.gated else 128)
    return (ops.trtllm_nvfp4_moe(experts, _routing(deployment)),)


def _mxfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """Return gpt-oss's calls, padded: hidden to 256, intermediate to 128. CUTLASS has rows in mxfp8 on
    sm120, else in bf16."""
    experts, major = _experts(deployment, 128), deployment.server.gpu.major
    padded = replace(experts, hidden=round_up(experts.hidden, 256))
    if major == 10:
        return (ops.trtllm_mxfp4_moe(padded, output=experts.hidden),)
    if major == 9:
        stored = Stored(BF16, Dtype("torch.uint8"), BF16, packed=2, biases=True, weight_groups=True)
        return _called(deployment, padded, stored)
    stored = Stored(E4M3, Dtype("torch.int64"), BF16, packed=16, biases=True, mxfp8_rows=True)
    return _called(deployment, padded, stored) if major == 12 else ()


_MOE_CALLS: dict[tuple[Calls | None, str | None], Callable[[Deployment], tuple[OpShape, ...]]] = {
    ("cutlass", None): _cutlass,
    ("cutlass", "modelopt_fp8"): _cutlass_fp8,
    ("cutlass", "modelopt_fp4"): _cutlass_nvfp4,
    ("trtllm", None): _trtllm_bf16,
    ("trtllm", "fp8"): _trtllm_fp8_block,
    ("trtllm", "modelopt_fp4"): _trtllm_nvfp4,
    ("mxfp4", "mxfp4"): _mxfp4,
}


def _of_linears(deployment: Deployment) -> Iterator[OpShape]:
    server, output = deployment.server, dtype_of(deployment)
    if deployment.quantization == "modelopt_fp8" and server.gpu.major in (9, 10, 12):
        yield from (ops.dense_fp8(k, n, output, seen) for k, n, seen in _linears(deployment))
    if deployment.model.mla is not None:
        yield from _absorbed(deployment)
    if fp4_is_tuned(deployment):
        gemm = server.runtime.kernels.fp4_gemm
        yield from (ops.dense_fp4(k, n, gemm, output, seen) for k, n, seen in _linears(deployment))


def fp4_is_tuned(deployment: Deployment) -> bool:
    in_fp4 = deployment.quantization == "modelopt_fp4" and deployment.arch != CPU.arch
    return in_fp4 and deployment.runtime.kernels.fp4_gemm in ops.FP4_RUNNERS


def _absorbed(deployment: Deployment) -> Iterator[OpShape]:
    """Yield MLA's products per head, of queries into latents and out of them, if the checkpoint has them
    in fp8 with one scale. Blocks of 128 are converted to plain weights."""
    model, mla = deployment.model, deployment.model.mla
    kind = model.quantized.of_linear([f"{model.layer_name(0)}.{model.names.attention}.kv_b_proj"])
    if mla is None or kind is None or kind.name != "fp8" or (kind.per, kind.block) == ("block", (128, 128)):
        return
    heads = model.main_attention.num_heads // deployment.parallel.attn_tp
    for k, n in ((mla.qk_nope_head_dim, mla.kv_lora_rank), (mla.kv_lora_rank, mla.v_head_dim)):
        yield ops.dense_fp8(k, n, BF16, "own", heads)


def _linears(deployment: Deployment) -> tuple[tuple[int, int, Seen], ...]:
    """Return (K, N) of each kind of quantized linear layer on one rank, and which rows it gets."""
    tp, alone = deployment.parallel.tp, deployment.runtime.kernels.a2a != "none"
    seen: dict[str, Seen] = {"dense": "gathered", "beside experts": "scattered" if alone else "gathered"}
    spread = Spread(tp, 1 if alone else tp, _fuses_swiglu(deployment))
    sizes = quantized_sizes(deployment.model, deployment.parallel, spread)
    return tuple(dict.fromkeys((k, n, seen.get(place, "own")) for k, n, place in sizes))


def _fuses_swiglu(deployment: Deployment) -> bool:
    """Whether DeepSeek's shared experts in nvfp4 are activated by the kernel that multiplies."""
    server = deployment.server
    fits = deployment.model.traits.of_deepseek and server.gpu.major == 10
    return fits and fp4_is_tuned(deployment) and server.runtime.kernels.fp4_gemm != "flashinfer_trtllm"
