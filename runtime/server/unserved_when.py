"""Conditions under which SGLang's class of a model is not written for a server."""

from __future__ import annotations

from runtime.server.call_rules import fused_shared_experts, has_no_shared_mlp
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.families import MINIMAX_NVFP4
from runtime.server.formats.kinds import Kind
from runtime.server.linears import each_listed, experts_listed, splits_over_tp
from runtime.server.parallel_config import ParallelConfig
from runtime.server.recurrent import KimiDeltaConfig, LightningConfig
from runtime.server.shape import Server

_MIXERS_IN_FP4, _UNGATED_IN_FP8 = (0, 5, 17), (0, 5, 19)
_DEEPGEMM_ON_12 = (0, 5, 13), (0, 5, 20)  # between these it is never there: srt/layers/deep_gemm_wrapper
_EACH_BY_ITSELF = ("fp8", "awq", "gptq")
_MADE_OF_EACH = ("fp8", "mxfp8")
_MADE_IN_FP4 = ("modelopt_fp4", "nvfp4_online")  # of plain ones


def splits_over_all(model: ModelConfig, server: Server) -> bool:
    """And its cache has room for the same, or it would end: see `writes_fewer_heads`."""
    whole = server.attn_dp_size > 1 and splits_over_tp(model)
    return whole and not writes_fewer_heads(model, server.parallel)


def writes_fewer_heads(model: ModelConfig, parallel: ParallelConfig) -> bool:
    """Than a group's cache has: kvcache.cuh of srt/mem_cache's kernels wants a row for each token."""
    if model.is_mla or not splits_over_tp(model):
        return False
    heads = model.main_attention.num_kv_heads
    return max(1, heads // parallel.tp) < max(1, heads // parallel.attn_tp)


def leaves_experts_plain(model: ModelConfig, server: Server) -> bool:
    """get_quant_method of srt/layers/quantization's awq and gptq, of which Marlin's are others."""
    return model.moe is not None and server.weights_quantization in ("awq", "gptq")


def makes_of_bert(model: ModelConfig, server: Server) -> bool:
    """Of a plain file: srt/models/bert.py and roberta.py give each matrix of a layer a method, no other."""
    made = model.checkpoint_quantization is None and server.weights_quantization in _MADE_OF_EACH
    return made and model.model_type in ("bert", "xlm-roberta")


def absorbs_by_one_scale(model: ModelConfig, _: Server) -> bool:
    """srt/models/minicpm3.py, of a matrix that has a scale for each of its rows."""
    names = (parts for size, _, parts in each_listed(model) if size.modules[0].endswith("kv_b_proj"))
    try:
        kinds = {model.quantized.of_linear(parts) for parts in names}
    except ConfigError:
        return False
    return any(kind is not None and kind.name == "fp8" and kind.per == "row" for kind in kinds)


def halves_ungated(model: ModelConfig, server: Server) -> bool:
    """create_fp8_moe_weight_ of srt/layers/quantization/fp8.py; ModelOpt's fp8 has a method of its own."""
    if model.moe is None or model.gated_mlps or server.release.number >= _UNGATED_IN_FP8:
        return False
    made = model.checkpoint_quantization is None and server.weights_quantization in ("fp8", "mxfp8")
    kinds = (kind for kind in _of_experts(model).values() if kind is not None)
    return made or any(
        kind.name == "mxfp8" or (kind.name == "fp8" and kind.widens != "modelopt") for kind in kinds
    )


def has_mixers_in_fp4(model: ModelConfig, server: Server) -> bool:
    """In a file, where srt/models/qwen3_5.py had them plain."""
    if server.weights_quantization != "modelopt_fp4" or server.release.number >= _MIXERS_IN_FP4:
        return False
    names = (parts for size, _, parts in each_listed(model) if size.place == "mixer")
    try:
        return any(model.quantized.of_linear(parts) is not None for parts in names)
    except ConfigError:  # of what runs as one a half is
        return True


def other_values(model: ModelConfig, server: Server) -> bool:
    delta, mla = model.recurrent, model.mla
    return (
        not server.release.kimi_linear_has_own_parts
        and isinstance(delta, KimiDeltaConfig)
        and mla is not None
        and delta.head_dim != mla.v_head_dim
    )


def in_blocks_of_deepgemms(model: ModelConfig, server: Server) -> bool:
    """On these GPUs DeepGEMM has other scales, which Ling 2.5's class makes of all matrices a second time."""
    major, since = server.gpu.major, server.release.number
    as_on_hopper = major == 9 or (major == 12 and _DEEPGEMM_ON_12[0] <= since < _DEEPGEMM_ON_12[1])
    return server.weights_quantization is not None and not as_on_hopper


def pads_shared(model: ModelConfig, server: Server) -> bool:
    """Where they are no routed expert more."""
    moe = model.moe
    if moe is None or server.weights_quantization is None or server.moe_a2a_backend != "none":
        return False
    width = moe.shared_intermediate_size
    return width > 0 and (server.asked.disable_shared_experts_fusion or width != moe.intermediate_size)


def other_widths(model: ModelConfig, _: Server) -> bool:
    """A step of a decode multiplies 128 channels of a key at a time, and no others."""
    return isinstance(model.recurrent, LightningConfig) and model.recurrent.head_dim % 128 != 0


def stretched(model: ModelConfig, server: Server) -> bool:
    rope = model.main_attention.rope
    stretch = 1.0 if rope is None else rope.parameters.get("factor", 1.0)
    return stretch != 1 and server.release.longcat_rope == "its base"


def not_in_blocks(model: ModelConfig, server: Server) -> bool:
    in_blocks = model.checkpoint_quantization == "fp8" and model.quantization_block is not None
    return server.weights_quantization is not None and not in_blocks


def reads_inverses_alone(model: ModelConfig, _: Server) -> bool:
    """load_weights of srt/models/hunyuan_v4.py, which makes weight_scale_inv of each weight_scale."""
    method = model.checkpoint_quantization
    in_blocks = method == "fp8" and model.quantization_block is not None
    return method is not None and method != "mxfp8" and not in_blocks


def not_each_by_itself(model: ModelConfig, server: Server) -> bool:
    """Under names that srt/models/transformers.py maps to its own, which those of a class are not read by."""
    method, declared = server.weights_quantization, model.checkpoint_quantization
    if declared is None and model.names.served is not None:
        return method not in (None, *_MADE_OF_EACH)
    of_file = method in (declared, f"{declared}_marlin") and model.names.served is not None
    known = of_file and declared in _EACH_BY_ITSELF
    return method is not None and (not known or model.quantized.of_head() is not None)


def scales_as_one(model: ModelConfig, _: Server) -> bool:
    """load_weights of srt/models/gpt_bigcode.py gives each of three parts what stands for all of them."""
    kinds = (model.quantized.of_linear(parts) for _, _, parts in each_listed(model) if "c_attn" in parts[0])
    try:
        known = (
            kind is None or kind.name == "awq" or (kind.name == "fp8" and kind.per == "tensor")
            for kind in kinds
        )
        return model.checkpoint_quantization is not None and not all(known)
    except ConfigError:
        return True


def quantizes_latents(model: ModelConfig, _: Server) -> bool:
    return _quantizes(model, "kv_b_proj", unclear=True)


def _quantizes(model: ModelConfig, ending: str, unclear: bool) -> bool:
    """Any matrix that is called so; `unclear`: where two things are told of what runs as one."""
    names = (parts for _, _, parts in each_listed(model) if parts[0].endswith(ending))
    try:
        return any(model.quantized.of_linear(parts) is not None for parts in names)
    except ConfigError:
        return unclear


def quantizes_towers(model: ModelConfig, server: Server) -> bool:
    """Of a class that knows nothing of lists: what has no method is plain anyway."""
    said = None if model.encoder is None else model.encoder.quantizes_text
    known = said == "whoever says so" or (said is not None and model.checkpoint_quantization is not None)
    return server.weights_quantization is not None and not known


def lowers_packed(model: ModelConfig, _: Server) -> bool:
    """srt/models/gemma3n_causal.py, in each forward, what its streams are mixed by."""
    return _quantizes(model, "_coefs", unclear=False)


def fuses_in_fp4(model: ModelConfig, server: Server) -> bool:
    """Of whose experts SGLang keeps scales twice, which here those of a shared one are not."""
    told = model, server.runtime, server.ep_size
    if not has_no_shared_mlp(*told) or fused_shared_experts(*told):
        return False
    kinds = {kind.name for kind in _of_experts(model).values() if kind is not None}
    return "nvfp4" in kinds or server.weights_quantization in _MADE_IN_FP4


def fuses_others(model: ModelConfig, server: Server) -> bool:
    """What its class runs as one expert more is not stored as the others are."""
    if not has_no_shared_mlp(model, server.runtime, server.ep_size):
        return False
    shared = ((layer, parts) for size, layer, parts in each_listed(model) if size.place == "beside experts")
    try:
        of_layer = _of_experts(model)
        return any(model.quantized.of_linear(parts) != of_layer[layer] for layer, parts in shared)
    except ConfigError:
        return False


def _of_experts(model: ModelConfig) -> dict[int, Kind | None]:
    layers = [layer for layer, kind in enumerate(model.layer_kinds) if kind == "moe"]
    return dict(zip(layers, map(model.quantized.of_experts, experts_listed(model)), strict=True))


def moves_experts(_: ModelConfig, server: Server) -> bool:
    return server.asked.enable_eplb or server.asked.ep_num_redundant_experts > 0


def by_trtllm(_: ModelConfig, server: Server) -> bool:
    return server.backend.calls == "trtllm" and not server.release.routes_by_named_method


def quantized_otherwise(model: ModelConfig, server: Server) -> bool:
    found = server.weights_quantization
    told = "mxfp8" if found == MINIMAX_NVFP4 else found  # by the file itself
    return told not in (None, "mxfp8") or told != model.checkpoint_quantization


def packs_otherwise(model: ModelConfig, server: Server) -> bool:
    """Than SGLang's classes of MiniMax-M3.1 are known to: minimax_m3_nvfp4.py"""
    experts = model.quantized.experts
    if experts is None or experts.name != "nvfp4_beside_mxfp8":
        return False
    known = "marlin" if server.gpu.major < 10 else "flashinfer_trtllm_routed"
    is_known = server.moe_runner_backend == known and server.moe_a2a_backend == "none"
    return server.weights_quantization != MINIMAX_NVFP4 or not is_known


def attends_otherwise(_: ModelConfig, server: Server) -> bool:
    """Sarvam 105B asks fa3 alone for heads of keys; others are asked as decodes are."""
    known = server.decode_attention_backend in ("fa3", "triton", "flashinfer")
    return not known or server.prefill_attention_backend not in ("fa3", "triton")


def without_scales(_: ModelConfig, server: Server) -> bool:
    """The kernels choose by the router's numbers, and are not told how much each expert counts."""
    chooses = server.backend.calls == "trtllm" and not server.backend.routed
    return chooses and not server.release.routes_by_named_method


def tunes_canvases(_: ModelConfig, server: Server) -> bool:
    return server.moe_runner_backend not in ("auto", "triton")


def attends_to_canvases(_: ModelConfig, server: Server) -> bool:
    return attends_by(server) != {"triton"}


def attends_by(server: Server) -> set[str]:
    return {server.prefill_attention_backend, server.decode_attention_backend}


def has_windows(model: ModelConfig) -> bool:
    return any(one.window is not None for one in model.attention.values())


def by_logits(_: ModelConfig, server: Server) -> bool:
    return server.moe_runner_backend not in ("auto", "triton", "flashinfer_cutlass")


def by_silu(model: ModelConfig, server: Server) -> bool:
    is_known = server.release.gelu_on_cutlass
    known = is_known == "all" or (is_known == "quantized" and server.weights_quantization is not None)
    return model.moe is not None and server.backend.calls == "cutlass" and not known


def mxfp4_elsewhere(model: ModelConfig, server: Server) -> bool:
    on_trtllm = server.moe_runner_backend == "flashinfer_mxfp4" and server.gpu.major == 10
    packed = model.moe is not None and server.weights_quantization is not None
    return packed and not on_trtllm and server.moe_runner_backend != "marlin"


def situ_tuned(model: ModelConfig, server: Server) -> bool:
    plain = model.moe is not None and server.weights_quantization is None
    return plain and model.activation == "situ" and server.backend.calls is not None
