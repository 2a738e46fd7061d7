"""MiMo-V2: values narrower than keys, and behind windows more KV heads, sinks and a rope of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import MLPS, SLIDES, model, routed_by_sigmoid, which
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, RopeConfig

_SHARE = 0.334  # of a head that turns
_ONE_WAY: Mapping[str, tuple[Any, ...]] = {
    "scoring_func": ("sigmoid",),
    "topk_method": ("noaux_tc",),
    "moe_router_dtype": ("float32",),
    "routed_scaling_factor": (1.0, 1),  # SGLang reads none
    "tie_word_embeddings": (False,),  # its head is one of its own
    "context_len": (),
    "scale_emb": (),
}


def _mimo_v2(f: Fields) -> ModelConfig:
    for name, values in _ONE_WAY.items():
        f.only(name, *values)
    layers = f.size("num_hidden_layers")
    kinds = _listed(f, "hybrid_layer_pattern", "layer_types", ("full", "sliding"), SLIDES, layers)
    if kinds is None:
        kinds = ["full" if i == 0 or not (i + 1) % 6 else "sliding" for i in range(layers)]
    mlps = _listed(f, "moe_layer_freq", "mlp_layer_types", ("dense", "moe"), MLPS, layers)
    return model(
        f,
        {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)},
        kinds,
        which(layers, bool) if mlps is None else mlps,
        moe=replace(routed_by_sigmoid(f), shared_intermediate_size=0, router_in_fp32=True),
        rms_eps=f.number(f.spelled("layernorm_epsilon", "rms_norm_eps")),
    )


def _listed(
    f: Fields, bits: str, words: str, kinds: tuple[str, str], known: Mapping[str, str], layers: int
) -> list[str] | None:
    """A 0 or 1 a layer, as published, or a word, as transformers writes it; alike where a file has both."""
    listed, told = f.get(bits), f.per_layer(words, layers, known)
    if listed is None:
        f.cannot(f"{bits} is missing: SGLang asks for it")
        return told
    if not isinstance(listed, list) or len(listed) < layers or not all(one in (0, 1) for one in listed):
        raise ConfigError(
            f"config.json: {bits} is {repr(listed)[:60]}: a 0 or 1 for {layers} layers is needed"
        )
    ours = [kinds[int(one)] for one in listed[:layers]]
    if told not in (None, ours):
        f.cannot(f"{words} are not those of {bits}")
    return ours


def _attention(f: Fields, kind: str) -> AttentionConfig:
    """Behind a window of as many heads, as wide as elsewhere, unless it is told."""
    count, kv_count = f.size("num_attention_heads"), f.size("num_key_value_heads")
    width, value_width = f.size("head_dim"), f.size("v_head_dim")
    sinks, window = f.flag("add_full_attention_sink_bias"), None
    rope = _rope(f, "full_attention", "rope_theta", width, 5e6)
    if kind == "sliding":
        count, kv_count = (
            f.size("swa_num_attention_heads", count),
            f.size("swa_num_key_value_heads", 2 * kv_count),
        )
        width, value_width = f.size("swa_head_dim", width), f.size("swa_v_head_dim", value_width)
        sinks, window = f.flag("add_swa_attention_sink_bias"), _window(f)
        rope = _rope(f, "sliding_attention", "swa_rope_theta", width, 1e4)
    if value_width > width:
        f.cannot(
            f"v_head_dim is {value_width}: this runtime computes values no wider than keys, here {width}"
        )
    return AttentionConfig(
        count,
        kv_count,
        width,
        rope,
        width**-0.5,
        window,
        bias=f.flag("attention_bias"),
        sinks=sinks,
        value_dim=value_width,
        value_scale=f.number("attention_value_scale", 1.0),
        any_rows=True,
    )


def _window(f: Fields) -> int:
    """Tokens that are seen with the query's own; SGLang's size counts those before it."""
    before = f.size_or_none("sliding_window_size")
    return f.size("sliding_window") if before is None else before + 1


def _rope(f: Fields, kind: str, base: str, width: int, theta: float) -> RopeConfig:
    """Of each kind by itself, or, as published, a base of each kind and a share of both."""
    f.only("rope_scaling")
    whole = f.section("rope_parameters")
    if whole:
        f.cannot(f"rope_parameters: SGLang takes {base}, as checkpoints have it")
    told = whole.get(kind)
    if whole and not isinstance(told, Mapping):
        f.cannot(f"rope_parameters are not told of {kind} by itself")
    share = f.number("partial_rotary_factor", _SHARE)
    published = {"rope_theta": f.number(base, theta), "partial_rotary_factor": share}
    parameters = told if isinstance(told, Mapping) else published
    is_plain = parameters.get("rope_type", "default") == "default"
    return read_rope_alone(f, parameters, width, share=_SHARE if is_plain else 1.0)


FAMILIES = (
    Family(
        "mimo_v2_flash",
        _mimo_v2,
        {
            "intermediate_size": 16384,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "moe_intermediate_size": 2048,
            "num_experts_per_tok": 8,
            "n_routed_experts": 256,
            "norm_topk_prob": True,
            "head_dim": 192,
            "v_head_dim": 128,
            "sliding_window": 129,
            "attention_value_scale": 0.707,
            "add_swa_attention_sink_bias": True,
        },
    ),
)
