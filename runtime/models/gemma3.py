"""Gemma 3 without images: norms around each half of a layer, windows in most layers."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.models.parts import SLIDES, heads, model
from runtime.models.reading import Config
from runtime.server.config import ModelConfig, Traits
from runtime.server.errors import ConfigError
from runtime.server.family import Family
from runtime.server.layer_config import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(Config):
    intermediate_size: int = 9216
    num_key_value_heads: int | None = 4
    head_dim: int | None = 256
    max_position_embeddings: int = 131072
    tie_word_embeddings: bool = True
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 6


def gemma3(c: Gemma3Config) -> ModelConfig:
    layers, every = c.num_hidden_layers, c.sliding_window_pattern
    counted = ["sliding" if (i + 1) % every else "full" for i in range(layers)]
    kinds = c.each_layer("layer_types", SLIDES) or counted
    if "sliding" in kinds and not c.sliding_window:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    return model(
        c,
        {kind: _attention(c, kind) for kind in dict.fromkeys(kinds)},
        kinds,
        ["dense"] * layers,
        vocabulary={"whole": True},
        style={"norms_after": True},
        traits=Traits(splits_over_tp=True),
    )


def _attention(c: Gemma3Config, kind: str) -> AttentionConfig:
    bias, full = c.attention_bias, kind == "full"
    rope = {"kind": "full_attention" if full else "sliding_attention"}
    window = None if full else c.sliding_window
    return heads(c, rope, window=window, qk_norm="head", bias=bias, output_bias=bias)


_CLASSES = ("Gemma3ForCausalLM", "Gemma3TextConfig")
FAMILIES = (Family("gemma3_text", *_CLASSES, Gemma3Config, gemma3, dtype_of_float32="bfloat16"),)
