"""HunYuan, dense and of experts: queries and keys are normed after they are turned, by a base of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, RopeConfig
from runtime.server.tensor_names import ServedNames, TensorNames

# By neither layer, nor expert, nor head.
_SERVED = ServedNames(
    (
        ("^lm_head$", ""),
        (r"^model\.layers\.\d+\.mlp\.(experts|shared_mlp)", ""),
        (r"^model\.layers\.\d+", ""),
    )
)
_NAMES = TensorNames(shared="shared_mlp", q_norm="query_layernorm", k_norm="key_layernorm", served=_SERVED)


def _dense(f: Fields) -> ModelConfig:
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "dense"), names=_NAMES)


def _moe(f: Fields) -> ModelConfig:
    """Its shared expert is as wide as the others."""
    inner = f.size("intermediate_size")
    if not f.has("moe_intermediate_size"):
        f.cannot("moe_intermediate_size is missing: SGLang asks for it")
    _alike(f, "moe_intermediate_size", inner)
    _alike(f, "num_shared_expert", 1)
    f.only("use_cla", False)
    top_k = _alike(f, f.spelled("moe_topk", "num_experts_per_tok"))
    experts = _alike(f, f.spelled("num_experts", "num_local_experts"))
    moe = MoEConfig(experts, top_k, inner, shared_intermediate_size=inner)
    return model(
        f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "moe"), moe=moe, names=_NAMES
    )


def _alike(f: Fields, name: str, wanted: int | None = None) -> int:
    """A number, or as many of them as layers, which are then one and the same here."""
    value = f.get(name)
    listed: Sequence[Any] = value if isinstance(value, list) else [wanted if value is None else value]
    if not listed or not all(type(one) is int and 0 < one < 1 << 24 for one in listed):
        raise ConfigError(f"config.json: {name} is {repr(value)[:60]}: a positive whole number is needed")
    if len({*listed, listed[0] if wanted is None else wanted}) > 1:
        f.cannot(
            f"{name} is {repr(value)[:60]}: this runtime computes {wanted or 'one number for all layers'}"
        )
    return int(listed[0])


def _attention(f: Fields) -> AttentionConfig:
    if f.get("use_qk_norm") is not True:
        f.cannot("use_qk_norm is not true: SGLang then norms neither queries nor keys")
    bias = f.flag("attention_bias")
    return heads(f, rope=_rope(f), bias=bias, output_bias=bias, qk_norm="head", norms_turned=True)


def _rope(f: Fields) -> RopeConfig:
    """A `dynamic` one with an alpha is a plain one of a larger base."""
    width = f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    told = f.section("rope_scaling") or f.section("rope_parameters")
    alpha = told.get("alpha")
    if (told.get("rope_type") or told.get("type")) != "dynamic" or not alpha:
        return read_rope(f, width)
    checked_number("rope_parameters: alpha", alpha)
    base = checked_number("rope_theta", told.get("rope_theta", f.number("rope_theta", 10000.0)))
    if alpha <= 0 or base <= 0 or width < 4:
        raise ConfigError(
            f"config.json: rope_parameters: alpha is {alpha}: it and rope_theta must be above 0"
        )
    plain = {"rope_type": "default", "rope_theta": base * alpha ** (width / (width - 2))}
    longest = f.size("max_position_embeddings")
    return replace(RopeConfig(width, plain["rope_theta"], longest), parameters=plain)


FAMILIES = (
    Family(
        "hunyuan_v1_dense",
        _dense,
        {"intermediate_size": 11008, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
    ),
    Family(
        "hunyuan_v1_moe",
        _moe,
        {
            "intermediate_size": 11008,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "num_experts": 1,
            "moe_topk": 1,
        },
    ),
)
