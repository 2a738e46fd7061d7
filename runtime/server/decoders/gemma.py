"""Gemma: a scaled embedding; of 2 and 3 norms at either end of each answer, most layers behind a window.

EmbeddingGemma is a Gemma 3 whose tokens see both ways, and whose answer is the mean of a prompt's rows.
"""

from __future__ import annotations

from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model
from runtime.server.decoders.rope import read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Multipliers, RopeConfig

_LOCAL_THETA = 10000.0


def _gemma3(f: Fields) -> ModelConfig:
    f.only("use_bidirectional_attention", False)
    kinds = _kinds_of_3(f)
    return _model(f, kinds, _attentions(f, kinds), embeds_whole=True)


def _kinds_of_3(f: Fields) -> list[str]:
    f.only("attn_logit_softcapping")
    f.get("_sliding_window_pattern")
    return _kinds(f, every=f.size("sliding_window_pattern", 6))


def _attentions(f: Fields, kinds: list[str]) -> dict[str, AttentionConfig]:
    return {kind: _attention(f, kind, rope=_rope(f, kind), qk_norm="head") for kind in kinds}


def _model(f: Fields, kinds: list[str], attention: dict[str, AttentionConfig], **own: Any) -> ModelConfig:
    f.only("hidden_activation", "gelu_pytorch_tanh")
    scales = Multipliers(
        embedding=f.size("hidden_size") ** 0.5, logit_cap=f.positive_or_none("final_logit_softcapping")
    )
    return model(
        f,
        attention,
        kinds,
        everywhere(f, "dense"),
        norms="sandwich",
        centred_norms=True,
        activation="gelu_tanh",
        multipliers=scales,
        **own,
    )


def _kinds(f: Fields, every: int) -> list[str]:
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    return told or ["sliding" if (i + 1) % every else "full" for i in range(layers)]


def _attention(f: Fields, kind: str, **own: Any) -> AttentionConfig:
    bias, window = f.flag("attention_bias"), f.size_or_none("sliding_window")
    if kind == "sliding" and window is None:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    scale = f.positive("query_pre_attn_scalar")
    seen = window if kind == "sliding" else None
    return heads(f, window=seen, scale=scale**-0.5, bias=bias, output_bias=bias, **own)


def _rope(f: Fields, kind: str) -> RopeConfig:
    """Of each kind by itself, or, as once, one for all, of which windows have the base alone."""
    width, local = f.size("head_dim"), f.number("rope_local_base_freq", _LOCAL_THETA)
    if kind == "full":
        return read_rope(f, width, "full_attention", theta=1e6)
    if "sliding_attention" in f.section("rope_parameters"):
        return read_rope(f, width, "sliding_attention", theta=local)
    parameters = {"rope_type": "default", "rope_theta": local}
    return RopeConfig(width, local, f.size("max_position_embeddings"), parameters=parameters)


_COMMON = {
    "intermediate_size": 9216,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
}
_OF_3 = {**_COMMON, "max_position_embeddings": 131072}

FAMILIES = (Family("gemma3_text", _gemma3, _OF_3),)
