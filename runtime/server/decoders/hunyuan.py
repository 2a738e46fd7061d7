"""HunYuan's dense models: queries and keys are normed after they are turned, by a base of its own."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig, TensorNames
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig

_NAMES = TensorNames(q_norm="query_layernorm", k_norm="key_layernorm")


def _dense(f: Fields) -> ModelConfig:
    bias = f.flag("attention_bias")
    attention = heads(f, rope=_rope(f), bias=bias, output_bias=bias, qk_norm="head", norms_turned=True)
    return model(f, {"full": attention}, everywhere(f, "full"), everywhere(f, "dense"), names=_NAMES)


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
        frozenset(("eod_token_id",)),
    ),
)
