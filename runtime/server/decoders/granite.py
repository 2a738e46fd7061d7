"""Granite 3: a Llama, or a Mixtral, with multipliers between its parts."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Multipliers


def _granite(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        multipliers=multipliers(f),
    )


def _granitemoe(f: Fields) -> ModelConfig:
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    moe = routed(f, "intermediate_size")
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "moe"),
        moe=moe,
        multipliers=multipliers(f),
    )


def _attention(f: Fields) -> AttentionConfig:
    f.only("attention_bias", False)
    return heads(f, scale=float(f.number("attention_multiplier")))


def multipliers(f: Fields) -> Multipliers:
    scaling = f.number("logits_scaling")
    if scaling == 0:
        raise ConfigError("config.json: logits_scaling is 0: logits are divided by it")
    return Multipliers(
        embedding=float(f.number("embedding_multiplier")),
        residual=float(f.number("residual_multiplier")),
        logits=1 / scaling,
    )


COMMON = {
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "embedding_multiplier": 1.0,
    "logits_scaling": 1.0,
    "residual_multiplier": 1.0,
    "attention_multiplier": 1.0,
}

FAMILIES = (
    Family("granite", _granite, COMMON),
    Family("granitemoe", _granitemoe, {**COMMON, "num_local_experts": 8, "num_experts_per_tok": 2}),
)
