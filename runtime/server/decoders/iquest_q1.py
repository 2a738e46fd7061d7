"""IQuest Q1: heads turned in part, by another base behind windows, keys that stand for no token, layers that
add to what their first norm made, and experts by a softmax behind a dense layer.

transformers has no class of it: its fields are those of srt/configs/iquest_q1.py, which comes with SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, Multipliers, RopeConfig
from runtime.server.residual_config import EntryConfig

# Of any other value the class ends, or does not read it.
_ALONE: Mapping[str, Any] = {
    "moe_router_dtype": "fp32",
    "enable_lm_head_fp32": True,
    "use_over_encoding": False,
    "attention_bias": False,
    "no_rope_layers": [],
}
_OF_A_ROPE = ("rope_type", "type", "rope_theta", "partial_rotary_factor")
_PLAIN = "default"


def _iquest_q1(f: Fields) -> ModelConfig:
    _check(f)
    kinds = _kinds(f)
    dense = f.layer_numbers("mlp_only_layers") if f.has("mlp_only_layers") else {0}
    return model(
        f,
        {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)},
        kinds,
        which(len(kinds), lambda layer: layer not in dense),
        intermediate_size=f.size("dense_intermediate_size"),
        moe=_routed(f),
        norms="entered",
        wide_norms=True,
        entry=EntryConfig(
            (f.number("first_layer_attn_out_scale"), f.number("first_layer_ffn_out_scale")),
            (f.number("attn_out_scale"), f.number("ffn_out_scale")),
        ),
        multipliers=Multipliers(logits=f.number("logit_scale")),
        logits_in_fp32=True,
    )


def _routed(f: Fields) -> MoEConfig:
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=f.size("intermediate_size"),
        router_in_fp32=True,
    )


def _check(f: Fields) -> None:
    if f.has("quantization_config"):
        f.cannot("quantization_config: SGLang's class reads experts that are plain, and no others")
    for name, value in _ALONE.items():
        f.only(name, value)


def _kinds(f: Fields) -> list[str]:
    """Of three lists, the second of which is repeated."""
    layers = f.size("num_hidden_layers")
    if not f.flag("use_hybrid_layers"):
        return everywhere(f, "full")
    block = _listed(f, "hybrid_layers_types_block", ["full_attention", *["sliding_attention"] * 3])
    times = min(f.count("num_hybrid_layers_block"), layers + 1)
    first = _listed(f, "first_layers_types", ["full_attention"])
    words = first + block * times + _listed(f, "last_layers_types", ["full_attention"] * 3)
    if len(words) != layers:
        raise ConfigError(
            f"config.json: num_hidden_layers is {layers}, and its lists of layers' types name {len(words)}"
        )
    return [SLIDES[word] if f.flag("use_sliding_window") else "full" for word in words]


def _listed(f: Fields, name: str, otherwise: list[str]) -> list[str]:
    told = f.get(name)
    words = otherwise if told is None else told
    if not isinstance(words, list) or not all(isinstance(word, str) and word in SLIDES for word in words):
        raise ConfigError(f"config.json: {name} is {repr(told)[:60]}: a list of {' and '.join(SLIDES)}")
    return words


def _attention(f: Fields, kind: str) -> AttentionConfig:
    width = f.size("head_dim")
    scale = f.number("softmax_scale") if f.has("softmax_scale") else width**-0.5
    return heads(
        f,
        kv_count=f.size("num_key_value_heads"),
        width=width,
        rope=_rope(f, width, kind),
        scale=scale,
        window=f.size("sliding_window") if kind == "sliding" else None,
        qk_norm="head",
        sink_keys=f.flag("enable_sink_attention"),
    )


def _rope(f: Fields, width: int, kind: str) -> RopeConfig:
    """All layers turn as large a part of a head."""
    told = {**(f.section("rope_parameters") or f.section("rope_scaling"))}
    for name in told.keys() - _OF_A_ROPE:
        f.cannot(f"rope_parameters has {name[:60]}: of this family no rope is stretched here")
    for name in ("rope_type", "type"):
        if told.get(name, _PLAIN) != _PLAIN:
            f.cannot(f"{name} is {repr(told[name])[:60]}: of this family no rope is stretched here")
    theta = checked_number("rope_theta", told.get("rope_theta", f.number("rope_theta")))
    if kind == "sliding":
        theta = f.number("swa_rope_theta")
    if theta <= 0:
        raise ConfigError(f"config.json: the base of a rope is {theta}: it must be above 0")
    turned = _turned(f, width, told.get("partial_rotary_factor", 1.0))
    parameters = {"rope_type": _PLAIN, "rope_theta": theta}
    return RopeConfig(turned, theta, f.size("max_position_embeddings"), parameters=parameters)


def _turned(f: Fields, width: int, share: Any) -> int:
    turned = f.size_or_none("rotary_dim")
    if turned is None:
        turned = int(width * checked_number("partial_rotary_factor", share))
    if turned % 2 or not 0 < turned <= width:
        raise ConfigError(f"config.json: rotary_dim is {turned}: it must be even, and no more than {width}")
    return turned


FAMILIES = (
    Family(
        "iquest_q1",
        _iquest_q1,
        {
            "dense_intermediate_size": 12288,
            "intermediate_size": 1536,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 524288,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "rotary_dim": 32,
            "swa_rope_theta": 10000.0,
            "sliding_window": 4096,
            "use_hybrid_layers": True,
            "use_sliding_window": True,
            "num_hybrid_layers_block": 21,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_router_dtype": "fp32",
            "enable_lm_head_fp32": True,
            "enable_sink_attention": True,
            "first_layer_attn_out_scale": 1.0,
            "first_layer_ffn_out_scale": 1.0,
            "attn_out_scale": 1.0,
            "ffn_out_scale": 0.53881590608,
            "logit_scale": 1.0,
        },
    ),
)
