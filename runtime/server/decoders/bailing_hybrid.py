"""Ling and Ring 2.5: lightning attention in most layers, latents in the last of each group, experts.

SGLang has a config class of its own for these files: what the checkpoints' class takes otherwise is named.
Layers forget by SGLang's slopes; those of the checkpoints' own file are of the layer before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders import bailing_hybrid_v3
from runtime.server.decoders.bailing import NAMES, check_weights, expert_groups
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import check_both, model, which
from runtime.server.layer_config import AttentionConfig, MLAConfig, MoEConfig, RopeConfig
from runtime.server.recurrent import LightningConfig
from runtime.server.tensor_names import ServedNames

_SERVED = ServedNames(
    (
        (r"\.attention\.dense$", ".attention.out_proj"),
        (r"\.attention\.query_key_value$", ".attention.qkv_proj"),
        (r"\.attention\.g_proj$", ".attention.output_gate"),
        ("^lm_head$", ""),
    )
)
_NAMES = replace(NAMES, recurrent="attention", served=_SERVED)
# Of no other value are SGLang's layers those of the checkpoints' own file, or they are another family's.
_ALONE: Mapping[str, Any] = {
    **dict.fromkeys(("tie_word_embeddings", "use_bias", "use_qkv_bias", "use_mla_nope"), False),
    **dict.fromkeys(("linear_silu", "use_linear_silu", "using_split_qkv_in_self_attention"), False),
    **dict.fromkeys(("rope_interleave", "linear_rope", "lightning_layerwise_decay"), True),
    **dict.fromkeys(("score_function", "scoring_func"), "sigmoid"),
    **{"norm_topk_prob": True, "topk_method": "noaux_tc", "router_dtype": "fp32"},
    **{"full_attention_type": "mla", "linear_backend": "seg_la"},
}
# What the checkpoints' class takes where a file does not say, and SGLang's otherwise.
_TAKEN: Mapping[str, Any] = {
    "layer_group_size": 5,
    "group_norm_size": 4,
    "moe_router_enable_expert_bias": True,
    "partial_rotary_factor": 0.5,
}
_LATENT_EPS = 1e-6
_LONGEST = 262144  # positions that latents have angles for, whatever a file says


def _bailing_hybrid(f: Fields) -> ModelConfig:
    _check(f)
    layers, first = f.size("num_hidden_layers"), f.count("first_k_dense_replace")
    kinds = _kinds(f, layers)
    attention, mla = _latents(f)
    return model(
        f,
        {"full": attention},
        kinds,
        which(layers, lambda layer: layer >= first),
        moe=_routed(f),
        mla=mla,
        recurrent=_lightning(f, layers),
        names=_NAMES,
        head_in_fp32=True,
        rows_in_fp32=True,
    )


def _check(f: Fields) -> None:
    check_weights(f)
    f.only("short_conv_kernel_size")
    f.only("moe_router_enable_expert_bias", True)
    for name, value in _ALONE.items():
        f.only(name, value)
    for name in _TAKEN:
        if not f.has(name) and not (name == "partial_rotary_factor" and f.has("rotary_dim")):
            f.cannot(f"{name} is missing: SGLang and the checkpoint's class take two other values")
    if f.number("rms_norm_eps") != _LATENT_EPS:
        told = f.get("rms_norm_eps")
        f.cannot(f"rms_norm_eps is {told}: SGLang norms latents by it, too, the checkpoint's class by 1e-06")


def _kinds(f: Fields, layers: int) -> list[str]:
    group = f.size("layer_group_size", _TAKEN["layer_group_size"])
    if layers % group:
        f.cannot(f"num_hidden_layers is {layers}: SGLang needs whole groups of {group}")
    kinds = ["recurrent" if (layer + 1) % group else "full" for layer in range(layers)]
    check_both(f, kinds)
    return kinds


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    sizes = {name: f.size(name) for name in names}
    mla = MLAConfig(q_lora_rank=f.size_or_none("q_lora_rank"), indexer=None, **sizes)
    count, rope = f.size("num_attention_heads"), _rope(f, mla.qk_rope_head_dim, _LONGEST, is_interleaved=True)
    return AttentionConfig(count, count, mla.qk_head_dim, rope, mla.qk_head_dim**-0.5), mla


def _lightning(f: Fields, layers: int) -> LightningConfig:
    count = f.size("num_attention_heads")
    width = f.size("head_dim", f.size("hidden_size") // count)
    turned = int(width * f.number("partial_rotary_factor", _TAKEN["partial_rotary_factor"]))
    turned = f.size("rotary_dim", max(turned, 1))
    if turned % 2 or turned > width:
        f.cannot(f"of heads {width} wide would turn {turned} values: this runtime turns pairs of them")
    return LightningConfig(
        num_heads=count,
        head_dim=width,
        norm_groups=f.size("group_norm_size", _TAKEN["group_norm_size"]),
        normed_heads=f.flag("use_qk_norm"),
        rope=_rope(f, turned, f.size("max_position_embeddings"), is_interleaved=False),
        num_layers=layers,
    )


def _rope(f: Fields, turned: int, longest: int, *, is_interleaved: bool) -> RopeConfig:
    """Of plain angles, by the theta that stands beside the section of the others."""
    theta = f.number("rope_theta")
    for section in ("rope_scaling", "rope_parameters"):
        told = f.section(section)
        kind = told.get("rope_type") or told.get("type") or "default"
        if kind != "default":
            f.cannot(f"{section}: rope_type is {repr(kind)[:60]}: this runtime computes 'default'")
        for name in ("rope_theta", "partial_rotary_factor"):
            if told.get(name) not in (None, f.get(name)):
                f.cannot(f"{section}: {name} is {repr(told[name])[:60]}: SGLang reads the one outside")
    return RopeConfig(turned, theta, longest, is_interleaved, {"rope_type": "default", "rope_theta": theta})


def _routed(f: Fields) -> MoEConfig:
    experts, top_k = f.size("num_experts"), f.size("num_experts_per_tok")
    if experts == 1:
        f.cannot("num_experts is 1: SGLang makes dense layers of them")
    if top_k == 1:
        f.cannot("num_experts_per_tok is 1: SGLang gives it the share 1, the checkpoint's class its score")
    inner, shared = f.size("moe_intermediate_size"), f.count("num_shared_experts")
    told = f.size("moe_shared_expert_intermediate_size", inner)
    if shared and told != inner:
        f.cannot(f"moe_shared_expert_intermediate_size is {told}: SGLang makes shared experts {inner} wide")
    groups, best = expert_groups(f, True)
    return MoEConfig(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=inner,
        shared_intermediate_size=inner * shared,
        scoring="sigmoid",
        correction_bias=True,
        num_groups=groups,
        top_k_groups=best,
        routed_scaling_factor=f.number("routed_scaling_factor"),
        router_in_fp32=True,
    )


_AGREED = {
    "vocab_size": 157184,
    "intermediate_size": 5120,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
    "rope_theta": 600000.0,
    "head_dim": 128,
    "use_qk_norm": True,
    "num_experts": 256,
    "num_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
}

_THIRD = {bailing_hybrid_v3.ARCHITECTURE: bailing_hybrid_v3.NAME}
FAMILIES = (Family("bailing_hybrid", _bailing_hybrid, _AGREED, _THIRD),)
