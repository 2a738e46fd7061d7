"""Llamas by transformers' own layers: Seed-OSS, SmolLM3, Helium, and ERNIE 4.5 of transformers' class."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.by_transformers import SEES_ALL, by_transformers
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads
from runtime.server.errors import ConfigError

ERNIE = "ernie4_5_of_transformers"


def _seed_oss(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    attention = heads(f, bias=f.flag("attention_bias"), output_bias=f.flag("attention_out_bias"))
    return by_transformers(f, {"full": attention})


def _smollm3(f: Fields) -> ModelConfig:
    """Some layers turn nothing. Of a window SGLang's layers see a token more than transformers'."""
    f.only("mlp_bias", False)
    f.only("use_sliding_window", False)
    f.only("sliding_window")
    if f.is_null("head_dim"):
        f.cannot("head_dim is null: its class has no other in its place")
    layers = f.size("num_hidden_layers")
    f.per_layer("layer_types", layers, SEES_ALL)
    bias = f.flag("attention_bias")
    turned = heads(f, theta=2e6, bias=bias, output_bias=bias)
    both = {"full": turned, "unturned": replace(turned, rope=None)}
    kinds = ["full" if turns else "unturned" for turns in _turning(f, layers)]
    read = by_transformers(f, both, kinds)
    return replace(read, attention={kind: both[kind] for kind in kinds})


def _helium(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    attention = heads(f, theta=1e5, bias=f.flag("attention_bias"), is_interleaved=True)
    if f.is_null("head_dim") or attention.num_heads * attention.head_dim != f.size("hidden_size"):
        f.cannot(f"head_dim is {attention.head_dim}: what heads answer has to be as wide as rows")
    return by_transformers(f, {"full": attention})


def _ernie(f: Fields) -> ModelConfig:
    f.only("use_bias", False)
    attention = heads(f, theta=500000.0, is_interleaved=True)
    return replace(by_transformers(f, {"full": attention}), model_type=ERNIE)


def _turning(f: Fields, layers: int) -> list[bool]:
    every, told = f.size("no_rope_layer_interval"), f.get("no_rope_layers")
    if told is None:
        return [(layer + 1) % every > 0 for layer in range(layers)]
    is_list = isinstance(told, list) and all(type(one) is int for one in told)
    if not is_list or len(told) < layers:
        raise ConfigError(
            f"config.json: no_rope_layers is {told!r:.60}: a list of {layers} numbers is needed"
        )
    return [one != 0 for one in told[:layers]]


FAMILIES = (
    Family(
        "seed_oss",
        _seed_oss,
        {
            **{"intermediate_size": 27648, "num_key_value_heads": 8, "head_dim": 128},
            **{"max_position_embeddings": 524288, "rms_norm_eps": 1e-6, "attention_bias": True},
        },
    ),
    Family(
        "smollm3",
        _smollm3,
        {
            **{"intermediate_size": 11008, "num_key_value_heads": 4, "no_rope_layer_interval": 4},
            **{"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "tie_word_embeddings": True},
        },
    ),
    Family(
        "helium",
        _helium,
        {
            **{"intermediate_size": 7040, "num_key_value_heads": 20, "head_dim": 128},
            **{"max_position_embeddings": 4096, "rms_norm_eps": 1e-8},
        },
    ),
    Family(
        ERNIE,
        _ernie,
        {
            **{"intermediate_size": 3072, "num_key_value_heads": 2, "head_dim": 128},
            **{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
        },
    ),
)
