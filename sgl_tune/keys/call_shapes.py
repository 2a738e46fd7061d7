"""Which tuned MoE ops an SGLang server calls, and with which sizes: by backend, quantization and version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.backends import Calls
from runtime.server.buckets import OF_FLASHINFER
from runtime.server.call_rules import (
    Routing,
    fused_shared_experts,
    fuses_on_each_rank,
    has_loose_experts,
    routing_form,
    runs_by_triton,
    sums_answers_itself,
)
from runtime.server.families import MINIMAX_NVFP4
from runtime.server.flashinfer import flashinfer_of
from runtime.server.gpus import CPU
from runtime.server.own_layer import drafts_without_experts
from runtime.server.tuning import (
    MODELOPT_FP8,
    is_tuned,
)
from sgl_tune.keys.expert_calls import (
    FP4_TILE,
    FP8_METHODS,
    HAVE_NO_FP8,
    MXFP4_BESIDE_FP8,
    NVFP4_BESIDE_FP8,
    STATIC_FP8,
    calls_are_known,
    calls_of,
    rows_of_mxfp4,
    runs_by_own_kernels,
    runs_mxfp4_by_cutlass,
    weights_of,
)
from sgl_tune.keys.mixed import of_each_kind
from sgl_tune.keys.op_shapes import (
    Dtype,
    Experts,
    OpShape,
    cpu_moe,
    cutedsl_nvfp4_moe,
    cutlass_moe,
    trtllm_bf16_moe,
    trtllm_fp8_block_moe,
    trtllm_fp8_tensor_moe,
    trtllm_mxfp4_moe,
    trtllm_mxfp8_moe,
    trtllm_mxint4_moe,
    trtllm_nvfp4_moe,
)
from sgl_tune.keys.packed_experts import PACKED_BLOCKS, PACKED_INT4, PACKED_NVFP4

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_E4M3, _BF16 = Dtype("torch.float8_e4m3fn"), Dtype("torch.bfloat16")


def tunes_moe(deployment: Deployment) -> bool:
    server = deployment.server
    asked = server.tunes and is_tuned(server.moe_runner_backend, server.release) and _has_experts(deployment)
    return asked and any(not _runs_elsewhere(one) for one in of_each_kind(deployment))


def _runs_elsewhere(deployment: Deployment) -> bool:
    """Than on what --moe-runner-backend says: by Triton's kernels, or a method's own."""
    server = deployment.server
    fp8 = deployment.quantization in FP8_METHODS and weights_of(deployment) != NVFP4_BESIDE_FP8
    elsewhere = fp8 and server.backend.calls in HAVE_NO_FP8 and server.release.runs_fp8_experts_elsewhere
    return elsewhere or runs_by_own_kernels(deployment)


def _has_experts(deployment: Deployment) -> bool:
    model = deployment.model
    if deployment.server.is_draft and drafts_without_experts(model):
        return False
    if runs_by_triton(model):
        return False
    return model.num_moe_layers > 0 and not has_loose_experts(model, deployment.quantization)


def moe_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    if not tunes_moe(deployment):
        return ()
    if deployment.arch == CPU.arch:
        alike, dtype = _of_equal_experts(deployment), dtype_of(deployment)
        return tuple(chain.from_iterable(cpu_moe(_experts(one), dtype) for one in alike))
    return tuple(chain.from_iterable(map(_shapes_of, of_each_kind(deployment))))


def unknown_experts(deployment: Deployment) -> Iterator[Deployment]:
    """Of those kinds whose lookups are not known."""
    if tunes_moe(deployment):
        for one in of_each_kind(deployment):
            if not _runs_elsewhere(one) and not _shapes_of(one):
                yield one


def _shapes_of(deployment: Deployment) -> tuple[OpShape, ...]:
    if _runs_elsewhere(deployment):
        return ()
    builder = _MOE_CALLS.get((calls_of(deployment), weights_of(deployment)))
    sent = deployment.server.moe_a2a_backend not in ("none", "flashinfer")
    by_others = sent and shares_on_every_rank(deployment)
    if builder is None or by_others or not calls_are_known(deployment):
        return ()
    return tuple(chain.from_iterable(builder(one) for one in _of_equal_experts(deployment)))


def _of_equal_experts(deployment: Deployment) -> Iterator[Deployment]:
    """One for each size of experts: they are the same but for it."""
    model = deployment.shape.model
    if model is None or not model.expert_sizes:
        yield deployment
        return
    for moe in model.moes:
        alike = replace(model, moe=moe, expert_sizes=())
        yield replace(deployment, shape=replace(deployment.shape, model=alike))


def shares_on_every_rank(deployment: Deployment) -> bool:
    """Each rank has the shared expert behind its own routed ones: no call of the runtime's."""
    spread = deployment.server.moe_a2a_backend != "none" or deployment.parallel.ep > 1
    return spread and fuses_on_each_rank(deployment.model, deployment.runtime)


def has_kernels(deployment: Deployment) -> bool:
    """FlashInfer, of the MoE backend, for this GPU."""
    backend = deployment.server.backend
    if calls_of(deployment) != backend.calls or not backend.kernel_majors:
        return True
    return deployment.server.gpu.major in backend.kernel_majors


def dtype_of(deployment: Deployment) -> Dtype:
    return Dtype(f"torch.{deployment.server.dtype}")


def _experts(deployment: Deployment, multiple: int = 1) -> Experts:
    model, parallel = deployment.model, deployment.parallel
    assert model.moe is not None
    shared = fused_shared_experts(model, deployment.runtime, parallel.moe_ep)
    total = model.moe.places + shared
    on_every = int(shares_on_every_rank(deployment))
    return Experts(
        hidden=model.moe.latent_size or model.hidden_size,
        intermediate=_round_up(model.moe.intermediate_size // parallel.moe_tp, multiple),
        local=total // parallel.moe_ep + on_every,
        total=total + on_every,
        top_k=model.moe.top_k + shared + on_every,
        tp=parallel.moe_tp,
        ep=parallel.moe_ep,
        gated=model.gated_mlps,
        gelu=bool(model.gelu),
        finishes=not sums_answers_itself(model),
    )


def _by_gate(deployment: Deployment, gated: int, plain: int) -> int:
    return gated if deployment.model.gated_mlps else plain


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _cutlass(deployment: Deployment) -> tuple[OpShape, ...]:
    dtype, quantized = dtype_of(deployment), deployment.quantization in MODELOPT_FP8
    stored = _E4M3 if quantized else dtype
    experts = _experts(deployment, multiple=16 if quantized else 1)
    return _cutlass_call(deployment, experts, stored, stored, dtype)


def _cutlass_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """Sixteen values in an int64, of rows padded to a tile of scales where there is no gate."""
    experts, weight = _experts(deployment, multiple=_by_gate(deployment, 1, 128)), Dtype("torch.int64")
    if deployment.server.gathers_nvfp4 or deployment.server.moe_a2a_backend == "flashinfer":
        uint8 = Dtype("torch.uint8")
        return _cutlass_call(deployment, experts, uint8, weight, _BF16, packed=16, rows_packed=2)
    return _cutlass_call(deployment, experts, _BF16, weight, _BF16, packed=16)


def _cutlass_packed_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    experts, dtype = _experts(deployment), dtype_of(deployment)
    return _cutlass_call(deployment, experts, dtype, Dtype("torch.int64"), dtype, packed=16)


def _cutlass_call(
    deployment: Deployment,
    experts: Experts,
    activation: Dtype,
    weight: Dtype,
    output: Dtype,
    packed: int = 1,
    rows_packed: int = 1,
) -> tuple[OpShape, ...]:
    return cutlass_moe(
        experts,
        flashinfer_of(deployment.flashinfer_version).keys,
        activation=activation,
        weight=weight,
        output=output,
        fused_finalize=deployment.server.fused_finalize,
        alltoall=deployment.server.moe_a2a_backend == "flashinfer",
        packed=packed,
        rows_packed=rows_packed,
    )


def routing_of(deployment: Deployment, in_fp8_blocks: bool = False) -> Routing:
    parallel = deployment.parallel
    return routing_form(
        deployment.model, deployment.runtime, in_fp8_blocks, parallel.moe_ep, parallel.attn_dp
    )


def _trtllm_fp8_block(deployment: Deployment) -> tuple[OpShape, ...]:
    routing = routing_of(deployment, in_fp8_blocks=True)
    return (trtllm_fp8_block_moe(_experts(deployment, multiple=128), routing),)


def _trtllm_fp8_tensor(deployment: Deployment) -> tuple[OpShape, ...]:
    experts = _experts(deployment, multiple=128)
    return (trtllm_fp8_tensor_moe(experts, routing_of(deployment)),)


def _trtllm_mxfp8(deployment: Deployment) -> tuple[OpShape, ...]:
    experts = _experts(deployment, multiple=128)
    return (trtllm_mxfp8_moe(experts, routing_of(deployment, in_fp8_blocks=True)),)


def _trtllm_mxint4(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_mxint4_moe(_experts(deployment, multiple=128)),)


def _cutedsl(deployment: Deployment) -> tuple[OpShape, ...]:
    if deployment.server.moe_a2a_backend != "none":
        return ()
    experts = _experts(deployment)
    first = tuple(rank * experts.local for rank in range(experts.ep))
    by_token = deployment.quantization == "nvfp4_online"
    form, fused = flashinfer_of(deployment.flashinfer_version).keys, deployment.server.fused_finalize
    return (cutedsl_nvfp4_moe(experts, first, form, dtype_of(deployment), fused, by_token),)


def _trtllm_bf16(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_bf16_moe(_experts(deployment, multiple=128), routing_of(deployment)),)


def _trtllm_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    gated = deployment.server.release.nvfp4_trtllm_rows
    experts = _experts(deployment, multiple=_by_gate(deployment, gated, 128))
    by_token = deployment.quantization == "nvfp4_online"
    shape = trtllm_nvfp4_moe(experts, routing_of(deployment), by_token)
    return (replace(shape, largest=OF_FLASHINFER),) if sums_answers_itself(deployment.model) else (shape,)


def _trtllm_packed_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    return (trtllm_nvfp4_moe(_experts(deployment, multiple=128), routing_of(deployment), by_token=False),)


def _minimax_nvfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """As compressed-tensors packs them. Behind megamoe its own kernels prefill."""
    if deployment.server.moe_a2a_backend != "none":
        return ()
    return (trtllm_nvfp4_moe(_experts(deployment, multiple=128), routing_of(deployment), True),)


def _mxfp4(deployment: Deployment) -> tuple[OpShape, ...]:
    """gpt-oss. Padding: hidden to 256, intermediate to 128, or to what a release has for TRT-LLM."""
    server = deployment.server
    if deployment.model.model_type != "gpt_oss":
        return ()
    on_trtllm = server.gpu.major == 10
    experts = _experts(deployment, multiple=server.release.mxfp4_trtllm_rows if on_trtllm else 128)
    padded = replace(experts, hidden=_round_up(experts.hidden, 256))
    if on_trtllm:
        plain = rows_of_mxfp4(deployment) == "bf16"
        return (trtllm_mxfp4_moe(padded, output=experts.hidden, plain_rows=plain),)
    return _mxfp4_by_cutlass(deployment, padded) if runs_mxfp4_by_cutlass(deployment) else ()


def _mxfp4_beside_fp8(deployment: Deployment) -> tuple[OpShape, ...]:
    """DeepSeek-V4, whose layers choose their experts themselves."""
    release, by_cutlass = deployment.server.release, runs_mxfp4_by_cutlass(deployment)
    pads = release.pads_fp4_beside_fp8 and not by_cutlass
    experts = _experts(deployment, multiple=FP4_TILE if pads else 1)
    if experts.intermediate % FP4_TILE:
        return ()
    if by_cutlass:
        return _mxfp4_by_cutlass(deployment, experts, biases=False)
    routing: Routing = "apart" if release.routes_apart else "packed"
    plain = rows_of_mxfp4(deployment) == "bf16"
    return (trtllm_mxfp4_moe(experts, experts.hidden, routing, plain),)


def _mxfp4_by_cutlass(deployment: Deployment, experts: Experts, biases: bool = True) -> tuple[OpShape, ...]:
    """Rows in mxfp8 on sm120, on Hopper in bf16, of which a kernel may make fp8."""
    on_hopper = deployment.server.gpu.major == 9
    return cutlass_moe(
        experts,
        flashinfer_of(deployment.flashinfer_version).keys,
        activation=_BF16 if on_hopper else _E4M3,
        weight=Dtype("torch.uint8" if on_hopper else "torch.int64"),
        output=_BF16,
        fused_finalize=deployment.server.fused_finalize,
        packed=2 if on_hopper else 16,
        biases=biases,
        mxfp8_rows=not on_hopper,
        weight_groups=on_hopper,
        fp8_rows=on_hopper and rows_of_mxfp4(deployment) == "fp8",
    )


_MOE_CALLS: dict[tuple[Calls | None, str | None], Callable[[Deployment], tuple[OpShape, ...]]] = {
    ("cutlass", None): _cutlass,
    ("cutlass", "modelopt"): _cutlass,
    ("cutlass", "modelopt_fp8"): _cutlass,
    ("cutlass", "modelopt_fp4"): _cutlass_nvfp4,
    ("trtllm", None): _trtllm_bf16,
    ("trtllm", "fp8"): _trtllm_fp8_block,
    ("trtllm", "modelopt_fp8"): _trtllm_fp8_tensor,
    ("trtllm", STATIC_FP8): _trtllm_fp8_tensor,
    ("trtllm", "modelopt_fp4"): _trtllm_nvfp4,
    ("trtllm", "nvfp4_online"): _trtllm_nvfp4,
    ("trtllm", MINIMAX_NVFP4): _minimax_nvfp4,
    ("trtllm", "mxfp8"): _trtllm_mxfp8,
    ("trtllm", PACKED_INT4): _trtllm_mxint4,
    ("trtllm", PACKED_NVFP4): _trtllm_packed_nvfp4,
    ("trtllm", PACKED_BLOCKS): _trtllm_fp8_block,
    ("cutlass", PACKED_NVFP4): _cutlass_packed_nvfp4,
    ("trtllm", NVFP4_BESIDE_FP8): _trtllm_nvfp4,
    ("mxfp4", "mxfp4"): _mxfp4,
    ("mxfp4", MXFP4_BESIDE_FP8): _mxfp4_beside_fp8,
    ("trtllm", MXFP4_BESIDE_FP8): _mxfp4_beside_fp8,
    ("cutedsl", "modelopt_fp4"): _cutedsl,
    ("cutedsl", "nvfp4_online"): _cutedsl,
}
