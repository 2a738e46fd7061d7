"""Ling and Ring, 1 and 2.0, which is Ming's text, too, and Sarvam and LLaDA2, whose layers are theirs:
experts behind a few dense layers, queries, keys and values in one matrix.

Their config classes are files of the checkpoints, and `bailing_moe` is what both call themselves: the
architecture tells which one it is. What a class does not have is as srt/models/bailing_moe.py has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, which
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import AttentionConfig, MoEConfig, RopeConfig
from runtime.server.tensor_names import TensorNames

NAMES = TensorNames(
    embedding="model.word_embeddings",
    attention="attention",
    packed_qkv="query_key_value",
    attention_out="dense",
    q_norm="query_layernorm",
    k_norm="key_layernorm",
)


def _bailing(f: Fields) -> ModelConfig:
    f.only("use_bias", False)
    f.only("use_sliding_window", False)
    f.only("use_rmsnorm", True)
    f.only("norm_softmax", False)
    first = f.count("first_k_dense_replace")
    kinds = which(f.size("num_hidden_layers"), lambda i: i >= first)
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        kinds,
        moe=_routed(f),
        names=NAMES,
        normed_head=f.flag("norm_head"),
        intermediate_size=f.size("intermediate_size") if "dense" in kinds else f.count("intermediate_size"),
    )


def _sarvam(f: Fields) -> ModelConfig:
    """srt/models/sarvam_moe.py. Its config class is a file of its checkpoints, which nobody here has read."""
    _told(f, *_SECOND)
    return _bailing(f)


def _llada(f: Fields) -> ModelConfig:
    """srt/models/llada2.py, which writes a block of tokens at a time; its config class is as unread."""
    _told(f, *_SECOND, "score_function")
    if f.has("expert_capacity"):
        f.cannot("expert_capacity is told: this runtime chooses experts token by token, and not for blocks")
    return _bailing(f)


def _told(f: Fields, *names: str) -> None:
    for name in names:
        if not f.tells(name):
            f.cannot(f"{name} is missing: what it is then, the checkpoint's own class says")


def _attention(f: Fields) -> AttentionConfig:
    qk_norm = "head" if f.flag("use_qk_norm") else "none"
    plain = heads(f, rope=None, bias=f.flag("use_qkv_bias"), qk_norm=qk_norm)
    return replace(plain, rope=_rope(f, plain.head_dim))


def _rope(f: Fields, width: int) -> RopeConfig:
    """A share of each head that only the file itself tells, else so many values."""
    if f.has("video_rope"):
        return _seeing(f, width)
    share = f.number("rotary_dim", width) / width
    told = f.number("partial_rotary_factor", share)
    rope = read_rope(f, width, share=share)
    if rope.dim != int(width * told):
        f.cannot(
            f"rope_parameters: partial_rotary_factor turns {rope.dim} values, SGLang {int(width * told)}"
        )
    return rope


def _seeing(f: Fields, width: int) -> RopeConfig:
    """Of Ming's text: of plain angles whatever it is called, which begin below 0."""
    section = f.section("rope_scaling") or f.section("rope_parameters")
    if section.get("factor", 1) != 1:
        f.cannot(f"rope_parameters: factor is {repr(section['factor'])[:60]}: SGLang would stretch by it")
    told = {"rope_type": "default", "rope_theta": section.get("rope_theta", f.number("rope_theta", 10000.0))}
    rows = 2 * f.size("max_position_embeddings")
    alone = Fields({"max_position_embeddings": rows, "rope_parameters": told}, {})
    return read_rope(alone, width, share=f.number("partial_rotary_factor", 0.5))


def _others(f: Fields) -> tuple[str, ...]:
    """Ming's routers for what is no text, which its class has where either field says so."""
    if not f.has("video_rope") or (not f.flag("multi_gate") and f.get("router_type") != "MultiRouter"):
        f.only("multi_gate", False)
        f.only("router_type", "topN")
        return ()
    if not f.flag("moe_router_enable_expert_bias"):
        f.cannot("moe_router_enable_expert_bias is not told: with several routers SGLang ends without it")
    return _FOR_NO_TEXT


def _routed(f: Fields) -> MoEConfig:
    """Sigmoids with a correction and groups, or a softmax without both."""
    f.only("router_dtype", "fp32")
    if not f.has("norm_topk_prob"):
        f.cannot("norm_topk_prob is missing: SGLang does not start without it")
    corrected = f.flag("moe_router_enable_expert_bias")
    f.only("score_function", "sigmoid" if corrected else "softmax")
    experts, top_k = f.size("num_experts"), f.size("num_experts_per_tok")
    groups, best = expert_groups(f, corrected)
    inner = f.size("moe_intermediate_size")
    shared = f.size("moe_shared_expert_intermediate_size", inner)
    return MoEConfig(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=inner,
        shared_intermediate_size=shared * f.count("num_shared_experts"),
        scoring="sigmoid" if corrected else "softmax",
        renormalize=f.flag("norm_topk_prob"),
        correction_bias=corrected,
        num_groups=groups,
        top_k_groups=best,
        routed_scaling_factor=f.number("routed_scaling_factor", 1.0),
        router_in_fp32=f.get("router_dtype") == "fp32",
        idle_routers=_others(f),
    )


def expert_groups(f: Fields, corrected: bool, name: str = "n_group") -> tuple[int, int]:
    groups, best = f.count(name), f.count("topk_group")
    told = f"{name} is {groups} and topk_group {best}"
    if not corrected and (groups or best):
        f.cannot(f"{told}: this runtime computes a softmax over all experts")
    elif corrected and not 0 < best <= groups:
        f.cannot(f"{told}: this runtime computes sigmoids of the best of some groups")
    return groups or 1, best or 1


def check_weights(f: Fields, beside: tuple[str, ...] = ()) -> None:
    """Of hybrids. SGLang gives their layers names of its own: lists would be read otherwise, but of what is
    `beside` them."""
    section = f.section("quantization_config")
    if not section:
        return
    if str(section.get("quant_method")).startswith("modelopt"):
        f.cannot("quantization_config: SGLang's head has no name, and ModelOpt's method whatever is listed")
    if section.get("quant_method") != "fp8" or not section.get("weight_block_size"):
        f.cannot("quantization_config: this runtime has plain layers of this family, and those in fp8 blocks")
    for name in section.keys() - _SECTION.keys():
        if section[name] and not (name in _LISTS and _are_of(section[name], beside)):
            f.cannot(f"quantization_config: {str(name)[:60]}: this runtime has all matrices in fp8 alike")
    for name, known in _SECTION.items():
        if known and section.get(name) not in (None, *known):
            f.cannot(f"quantization_config: {name} is {repr(section[name])[:60]}: here is {known[0]!r}")


def _are_of(listed: Any, names: tuple[str, ...]) -> bool:
    return isinstance(listed, list) and all(str(one).removeprefix("model.") in names for one in listed)


_FOR_NO_TEXT = ("image_gate", "audio_gate")
_LISTS = ("ignored_layers", "modules_to_not_convert")
# What is read of a section, and of what nothing else is computed.
_SECTION: dict[str, tuple[str, ...]] = {
    **{"quant_method": (), "weight_block_size": ()},
    **{"activation_scheme": ("dynamic",), "fmt": ("e4m3",), "scale_fmt": ("ue8m0",)},
}
_FIRST = {
    "use_bias": True,
    "num_key_value_heads": 0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 16384,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
_SECOND = {
    "intermediate_size": 5120,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
    "rope_theta": 600000.0,
    "use_qk_norm": True,
    "num_experts": 256,
    "num_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "moe_router_enable_expert_bias": True,
}

FAMILIES = (
    Family("bailing_moe", _bailing, _FIRST, {"BailingMoeV2ForCausalLM": "bailing_moe_v2"}),
    Family("bailing_moe_v2", _bailing, _SECOND),
    Family("sarvam_moe", _sarvam, _SECOND),
    Family("llada2_moe", _llada, _SECOND),
)
