"""Which tuned GEMMs of dense layers an SGLang server calls, and with which sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.call_rules import DEEPSEEK_LAYERS, has_loose_experts, has_no_shared_mlp, joins_indexer
from runtime.server.config import ModelConfig
from runtime.server.families import MINIMAX_NVFP4
from runtime.server.flashinfer import KeyForm, flashinfer_of
from runtime.server.formats.kinds import Kind, is_absorbed_in_fp8
from runtime.server.gpus import CPU
from runtime.server.linears import Spread, quantized_sizes
from runtime.server.rows import Seen
from runtime.server.tuning import MODELOPT_FP8, runs_block_fp8_as_mxfp8, runs_mxfp8_gemm
from runtime.server.whole_mlps import has_whole_dense, has_whole_shared
from sgl_tune.keys.call_shapes import dtype_of
from sgl_tune.keys.dense_ops import FP4_RUNNERS, MXFP8_RUNNERS, dense_fp4, dense_mxfp8, products_in_fp8
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.mixed import MIXED, has_dense, shares_in_fp4_alone, wanted_for
from sgl_tune.keys.op_shapes import Dtype, OpShape

# Families whose shared experts are split over TP behind an all-to-all, too, but behind these.
_SPLIT_SHARED = {"llama4": (), "llama4_text": (), "minimax_m3_vl_text": ("deepep", "megamoe")}

# What --fp8-gemm-backend names of mxfp8's GEMMs, first and later; of others a GPU has its own.
_BY_CUTLASS = ("flashinfer_cutlass", "flashinfer_trtllm")
_OF_MXFP8 = (*_BY_CUTLASS, "flashinfer_cutedsl")

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def tunes_dense(deployment: Deployment) -> bool:
    """FP8 GEMMs with one scale a tensor, through FlashInfer."""
    server = deployment.server
    quantized = deployment.quantization in MODELOPT_FP8 or has_dense(deployment, "modelopt_fp8")
    return server.tunes and quantized and server.gpu.major in server.release.fp8_gemm_layers


def tunes_fp4(deployment: Deployment) -> bool:
    """By any of FlashInfer's kernels: the gate may be open for another reason than theirs."""
    server = deployment.server
    # what is made nvfp4 while it is loaded, of fp8 or of plain weights, are the experts alone
    quantized = deployment.model.checkpoint_quantization not in (None, "fp8")
    has_some = quantized and has_dense(deployment, "modelopt_fp4")
    return (
        server.tunes and has_some and server.fp4_gemm_backend in FP4_RUNNERS and server.gpu.arch != CPU.arch
    )


def tunes_mxfp8(deployment: Deployment) -> bool:
    """Of mxfp8 weights, or of fp8 weights that can pass for them."""
    server, quantization, model = deployment.server, deployment.quantization, checkpoint_of(deployment)
    release, backend = server.release, server.asked.fp8_gemm_runner_backend
    multiplied = "mxfp8" if has_dense(deployment, "mxfp8") else quantization
    return server.tunes and (
        runs_mxfp8_gemm(multiplied, backend, server.gpu, release)
        or runs_block_fp8_as_mxfp8(quantization, model, backend, server.gpu, release)
        or _by_cutlass_alone(deployment)
    )


def _by_cutlass_alone(deployment: Deployment) -> bool:
    """Once FlashInfer's mxfp8 GEMMs had no other choice; its block-scaled fp8 ones ask its tuner nothing."""
    server, asked = deployment.server, deployment.server.asked.fp8_gemm_runner_backend
    if server.release.mxfp8_gemm_methods or deployment.quantization != "mxfp8":
        return False
    by_default = asked == "auto" and server.release.mxfp8_runs_cutlass_gemm and server.gpu.major == 10
    return by_default or (asked in _BY_CUTLASS and server.gpu.major >= 10)


def tunes_absorbed(deployment: Deployment) -> bool:
    """A latent attention's matrices in fp8: of a checkpoint's with one scale, or one a row or for blocks of
    other sizes, from which SGLang makes one. What is quantized after loading was absorbed before, plain."""
    model = deployment.model
    return (
        deployment.server.release.absorbs_by_flashinfer
        and model.is_mla
        and any(map(is_absorbed_in_fp8, _of_latents(model)))
    )


def _of_latents(model: ModelConfig) -> Iterator[Kind | None]:
    for layer in range(model.num_layers):
        if model.keeps_tokens(layer):
            stem = f"{model.layer_name(layer)}.{model.names.attention}{model.half_name(layer)}"
            yield model.quantized.of_linear(model.names.listed([f"{stem}.kv_b_proj"]))


def dense_shapes(deployment: Deployment) -> tuple[OpShape, ...]:
    return tuple(_dense_shapes(deployment))


def _dense_shapes(deployment: Deployment) -> Iterator[OpShape]:
    form, output = flashinfer_of(deployment.flashinfer_version).keys, dtype_of(deployment)
    if fp8_is_known(deployment):
        sizes = linear_sizes(deployment, "modelopt_fp8")
        yield from (products_in_fp8(k, n, output, form, seen) for k, n, seen in sizes)
    if tunes_absorbed(deployment):
        yield from _absorbed(deployment, form)
    if mxfp8_is_known(deployment):
        gemm, sizes = _mxfp8_backend(deployment), linear_sizes(deployment, "mxfp8")
        yield from (dense_mxfp8(k, n, gemm, output, form, seen) for k, n, seen in sizes)
    if fp4_is_known(deployment):
        gemm, sizes = deployment.server.fp4_gemm_backend, linear_sizes(deployment, "modelopt_fp4")
        yield from (dense_fp4(k, n, gemm, output, form, seen) for k, n, seen in sizes)


def _absorbed(deployment: Deployment, form: KeyForm) -> Iterator[OpShape]:
    """Queries into latents and answers out of them, a product a head."""
    model, mla = deployment.model, deployment.model.mla
    assert mla is not None
    heads = model.main_attention.num_heads // deployment.parallel.attn_tp
    seen: Seen = "own" if model.drops_absorbed else "own, decoded"
    for k, n in ((mla.qk_nope_head_dim, mla.kv_lora_rank), (mla.kv_lora_rank, mla.v_head_dim)):
        yield products_in_fp8(k, n, Dtype("torch.bfloat16"), form, seen, heads)


def fp8_is_known(deployment: Deployment) -> bool:
    return tunes_dense(deployment) and _is_known(deployment)


def _is_known(deployment: Deployment) -> bool:
    return deployment.model.compressed is None


def mxfp8_is_known(deployment: Deployment) -> bool:
    chosen = deployment.quantization in ("mxfp8", MINIMAX_NVFP4, MIXED) and _is_known(deployment)
    return chosen and tunes_mxfp8(deployment) and _mxfp8_backend(deployment) in MXFP8_RUNNERS


def _mxfp8_backend(deployment: Deployment) -> str:
    """resolve_mxfp8_dense_gemm_backend of srt/layers/quantization/fp8_utils.py, in its releases."""
    if _by_cutlass_alone(deployment):
        return "flashinfer_cutlass"
    asked = deployment.server.asked.fp8_gemm_runner_backend
    by_gpu = "flashinfer_cutedsl" if deployment.server.gpu.major == 10 else "flashinfer_cutlass"
    return asked if asked in _OF_MXFP8 else by_gpu


def fp4_is_known(deployment: Deployment) -> bool:
    return tunes_fp4(deployment) and _is_known(deployment)


def linear_sizes(deployment: Deployment, method: str) -> tuple[tuple[int, int, Seen], ...]:
    """(K, N) of each kind of linear layer that `method` runs on one rank, and which rows it sees."""
    whole = {"dense": _has_whole_dense(deployment), "beside experts": _has_whole_shared(deployment)}
    seen: dict[str, Seen] = {place: "scattered" if one else "gathered" for place, one in whole.items()}
    wanted = wanted_for(deployment, method)
    sizes = quantized_sizes(deployment.model, deployment.parallel, _spread(deployment), wanted)
    return tuple(dict.fromkeys((k, n, seen.get(place, "own")) for k, n, place in sizes))


def _spread(deployment: Deployment) -> Spread:
    tp = deployment.parallel.tp
    dense, shared = 1 if _has_whole_dense(deployment) else tp, 1 if _has_whole_shared(deployment) else tp
    if has_no_shared_mlp(deployment.model, deployment.runtime, deployment.parallel.moe_ep):
        shared = 0
    loose = has_loose_experts(deployment.model, deployment.quantization)
    joined = joins_indexer(deployment.model, deployment.server.release)
    return Spread(dense, shared, _fuses_swiglu(deployment), loose, joined)


def _has_whole_dense(deployment: Deployment) -> bool:
    return has_whole_dense(deployment.model, deployment.runtime)


def _has_whole_shared(deployment: Deployment) -> bool:
    model, server = deployment.model, deployment.server
    sent_by, whole_behind = server.moe_a2a_backend, _SPLIT_SHARED.get(model.model_type)
    sent = sent_by != "none" and (whole_behind is None or sent_by in whole_behind)
    return sent or has_whole_shared(model, deployment.runtime)


def _fuses_swiglu(deployment: Deployment) -> bool:
    server, model = deployment.server, deployment.model
    fits = model.model_type in DEEPSEEK_LAYERS and not model.caps and shares_in_fp4_alone(model)
    fused = server.release.fuses_nvfp4_swiglu and fits and server.gpu.major == 10
    backend = fused and fp4_is_known(deployment) and deployment.server.fp4_gemm_backend != "flashinfer_trtllm"
    return backend and not server.compiles_prefills and not server.asked.enable_lora
