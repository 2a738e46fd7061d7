"""Ling and Ring 3: delta attention in most layers, latents in the last of each group, experts.

Its `model_type` is Ling 2.5's. SGLang has a config class of its own for both: what transformers' takes
otherwise is named. It is the text of Ling 3 VL, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.bailing import NAMES, check_weights, expert_groups
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import MLPS, as_counted, check_both, model, which
from runtime.server.decoders.rope import interleaved, read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Caps, MLAConfig, MoEConfig, RopeConfig
from runtime.server.recurrent import KimiDeltaConfig
from runtime.server.tensor_names import ServedNames

NAME, ARCHITECTURE = "bailing_hybrid_v3", "BailingMoeV3ForCausalLM"
_SERVED = ServedNames(((r"\.mlp\.", "."), (r"\.attention\.", ".self_attn."), ("^lm_head$", "")))
_NAMES = replace(NAMES, recurrent="attention", served=_SERVED)
_MIXERS = {"linear_attention": "recurrent", "full_attention": "full"}
# Of no other value are SGLang's layers those of transformers.
_ALONE: Mapping[str, Any] = {
    **dict.fromkeys(("tie_word_embeddings", "attention_bias", "use_bias", "use_qkv_bias"), False),
    **dict.fromkeys(("use_mla_nope", "multi_gate"), False),
    **dict.fromkeys(("rope_interleave", "moe_router_enable_expert_bias", "no_kda_lora"), True),
    **dict.fromkeys(("score_function", "scoring_func"), "sigmoid"),
    **{"topk_method": "noaux_tc", "router_dtype": "fp32", "router_type": "topN"},
    **{"full_attention_type": "mla", "gated_attention_proj_granularity_type": "head_wise"},
}
# What transformers takes where a file does not say, and SGLang otherwise: srt/configs/bailing_hybrid.py.
_TAKEN: Mapping[str, Any] = {
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 512,
    "first_k_dense_replace": 2,
    "max_position_embeddings": 262144,
    "routed_scaling_factor": 2.5,
    "layer_group_size": 6,
    "short_conv_kernel_size": 4,
    "kda_safe_gate": True,
    "kda_lower_bound": -5.0,
    "norm_topk_prob": True,
    **{name: _ALONE[name] for name in ("moe_router_enable_expert_bias", "no_kda_lora")},
    "gated_attention_proj_granularity_type": _ALONE["gated_attention_proj_granularity_type"],
}
_THETA = 6e6  # and so here
# Another spelling of transformers', which SGLang does not read.
_SPELLED_APART = {
    "num_experts": "num_local_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "num_shared_experts": "n_shared_experts",
    "n_group": "num_expert_group",
    "norm_topk_prob": "moe_renormalize",
    "max_position_embeddings": "model_max_length",
    "head_dim": "linear_head_dim",
    "num_attention_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
_EPS = 1e-6
_BESIDE = ("visual", "linear_proj", "lm_head")  # what a list may mean there


def _bailing_hybrid_v3(f: Fields) -> ModelConfig:
    _check(f)
    layers = f.size("num_hidden_layers")
    attention, mla = _latents(f)
    mlps = _mlps(f, layers)
    read = model(
        f,
        {"full": attention},
        _kinds(f, layers),
        mlps,
        moe=_routed(f),
        mla=mla,
        recurrent=_delta(f, mla.v_head_dim),
        caps=_caps(f, mlps),
        names=_NAMES,
        max_position=_longest(f),
        intermediate_size=f.count("intermediate_size", _TAKEN["intermediate_size"]),
        whole_embedding=True,
    )
    return replace(read, model_type=NAME)


def _check(f: Fields) -> None:
    check_weights(f, _BESIDE if f.has("video_rope") else ())
    for name, value in _ALONE.items():
        f.only(name, value)
    for read, theirs in _SPELLED_APART.items():
        if f.has(theirs) and f.get(theirs) != f.get(read):
            f.cannot(f"{theirs} is {repr(f.get(theirs))[:60]}: SGLang reads {read}")
    for name in _TAKEN:
        if not f.has(name):
            f.cannot(f"{name} is missing: SGLang and transformers take two other values")
    if f.number("rms_norm_eps") != _EPS:
        told = f.get("rms_norm_eps")
        f.cannot(f"rms_norm_eps is {told}: SGLang norms latents by it, and answers of delta layers by 1e-06")
    if f.get("architectures") not in (None, [ARCHITECTURE]):
        told = repr(f.get("architectures"))[:60]
        f.cannot(f"architectures is {told}: SGLang then keeps shared experts apart")


def _told(f: Fields, name: str) -> str:
    """Under which of its spellings the file has it: transformers' own outranks the other there."""
    return f.spelled(_SPELLED_APART[name], name)


def _longest(f: Fields) -> int:
    return f.size(_told(f, "max_position_embeddings"), _TAKEN["max_position_embeddings"])


def _kinds(f: Fields, layers: int) -> list[str]:
    group = f.size("layer_group_size", _TAKEN["layer_group_size"])
    kinds = ["recurrent" if (layer + 1) % group else "full" for layer in range(layers)]
    told = as_counted(f, "layer_types", _MIXERS, kinds, f"layer_group_size {group}")
    if layers % group:
        f.cannot(f"num_hidden_layers is {layers}: SGLang needs whole groups of {group}")
    check_both(f, kinds)
    return told or kinds


def _mlps(f: Fields, layers: int) -> list[str]:
    first = _TAKEN["first_k_dense_replace"]
    if f.has("first_k_dense_replace"):
        first = f.count("first_k_dense_replace")
    kinds = which(layers, lambda i: i >= first)
    return as_counted(f, "mlp_layer_types", MLPS, kinds, f"first_k_dense_replace {first}")


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = {name: f.size(name) for name in names}
    mla = MLAConfig(q_lora_rank=f.size_or_none("q_lora_rank"), indexer=None, **sizes)
    count, rope = f.size("num_attention_heads"), _rope(f, mla.qk_rope_head_dim)
    scale = mla.qk_head_dim**-0.5
    return AttentionConfig(count, count, mla.qk_head_dim, rope, scale, head_gate=True), mla


def _rope(f: Fields, width: int) -> RopeConfig:
    """Of plain angles, all of `width`: shares of a head are of other layers than these."""
    section = f.section("rope_scaling") or f.section("rope_parameters")
    kind = section.get("rope_type") or section.get("type") or "default"
    if kind != "default":
        f.cannot(f"rope_type is {repr(kind)[:60]}: this runtime computes 'default'")
    theta = section.get("rope_theta", f.get("rope_theta"))
    if theta is None:
        f.cannot("rope_theta is missing: SGLang and transformers take two other values")
        theta = _THETA
    if f.get("video_rope") not in (None, True) or (section.get("video_rope") and not f.has("video_rope")):
        f.cannot("video_rope: SGLang has one in all of Ling 3 VL, and this runtime nowhere else")
    if section.get("factor", 1) != 1 and f.has("video_rope"):
        f.cannot(f"rope_parameters: factor is {repr(section['factor'])[:60]}: SGLang stretches by it")
    told = {"rope_type": "default", "rope_theta": theta}
    rows = _longest(f) * (2 if f.flag("video_rope") else 1)
    alone = Fields({"max_position_embeddings": rows, "rope_parameters": told}, {})
    rope = read_rope(alone, width)
    f.obstacles.extend(alone.obstacles)
    return interleaved(rope, True)


def _delta(f: Fields, values: int) -> KimiDeltaConfig:
    """Sizes by the names that transformers gives them, where the file has those."""
    width = f.size(_told(f, "head_dim"))
    if width != values:
        f.cannot(f"v_head_dim is {values} and head_dim {width}: SGLang's delta layers have values of both")
    bound: float | None = None
    if not f.has("kda_safe_gate") or f.flag("kda_safe_gate"):
        bound = f.number("kda_lower_bound", _TAKEN["kda_lower_bound"])
        if not bound < 0:
            raise ConfigError(f"config.json: kda_lower_bound is {bound}: a number below 0 is needed")
    return KimiDeltaConfig(
        num_heads=f.size(_told(f, "num_attention_heads")),
        head_dim=width,
        conv_kernel=f.size(_told(f, "short_conv_kernel_size"), _TAKEN["short_conv_kernel_size"]),
        narrow_gates=False,
        lower_bound=bound,
    )


def _routed(f: Fields) -> MoEConfig:
    experts = f.size(_told(f, "num_experts"), _TAKEN["num_experts"])
    top_k, renormalize = f.size(_told(f, "num_experts_per_tok")), _told(f, "norm_topk_prob")
    if experts == 1:
        f.cannot("num_experts is 1: SGLang makes dense layers of them")
    inner = f.size("moe_intermediate_size", _TAKEN["moe_intermediate_size"])
    together = inner * f.count(_told(f, "num_shared_experts"))
    shared = f.count("moe_shared_expert_intermediate_size", together)
    if shared != together:
        f.cannot(f"moe_shared_expert_intermediate_size is {shared}: transformers has {together}")
    groups, best = expert_groups(f, True, _told(f, "n_group"))
    return MoEConfig(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=inner,
        shared_intermediate_size=shared,
        scoring="sigmoid",
        renormalize=f.flag(renormalize) if f.has(renormalize) else True,
        correction_bias=True,
        num_groups=groups,
        top_k_groups=best,
        routed_scaling_factor=f.number("routed_scaling_factor", _TAKEN["routed_scaling_factor"]),
        router_in_fp32=True,
    )


def _caps(f: Fields, mlps: list[str]) -> tuple[Caps, ...]:
    """Which transformers does not read. Dense layers have none."""
    routed, others = (_limits(f, f"{of}_swiglu_limit_list", mlps) for of in ("expert", "share_expert"))
    if not any((*routed, *others)):
        return ()
    return tuple(Caps(one or None, other or None) for one, other in zip(routed, others, strict=True))


def _limits(f: Fields, name: str, mlps: list[str]) -> list[float]:
    listed = f.get(name) or []
    if not isinstance(listed, list):
        raise ConfigError(f"config.json: {name} is {repr(listed)[:60]}: a list of numbers is needed")
    limits = [checked_number(name, 0.0 if one is None else one) for one in listed[: len(mlps)]]
    if any(limit < 0 for limit in limits):
        raise ConfigError(f"config.json: {name}: a limit is below 0")
    limits += [0.0] * (len(mlps) - len(limits))
    return [limit if kind == "moe" else 0.0 for limit, kind in zip(limits, mlps, strict=True)]


_AGREED = {
    "vocab_size": 157184,
    "rms_norm_eps": 1e-6,
    "head_dim": 128,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
}

FAMILIES = (Family(NAME, _bailing_hybrid_v3, _AGREED),)
