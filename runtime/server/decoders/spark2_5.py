"""Spark 2.5: three of four layers behind a window, ropes of each kind, answers by a gate a head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(embedding="model.embedding", packed_qkv="q_k_v_proj", attention_out="out_proj")
_SERVED = ServedNames(bare=("self_attn.g_proj",))
_WORDS = {kind: word for word, kind in SLIDES.items()}
_ROPES: Mapping[str, Mapping[str, Any]] = {
    "full": {"rope_theta": 5000000, "partial_rotary_factor": 0.25},
    "sliding": {"rope_theta": 10000, "partial_rotary_factor": 1.0},
}


def _spark(f: Fields) -> ModelConfig:
    f.only("hidden_act", "gelu", "gelu_pytorch_tanh")  # SGLang asks no file
    f.only("attention_bias", False)
    f.only("rope_scaling")
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or ["full" if layer % 4 == 3 else "sliding" for layer in range(layers)]
    if "sliding" not in kinds:
        f.cannot("layer_types have no window: of such a model SGLang has one pool, and here are two")
    attention = {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)}
    names = replace(_NAMES, served=_SERVED) if f.flag("headwise_attn_output_gate") else _NAMES
    return model(f, attention, kinds, everywhere(f, "dense"), activation="gelu_tanh", names=names)


def _attention(f: Fields, kind: str) -> AttentionConfig:
    window = f.size("sliding_window") if kind == "sliding" else None
    gates = f.flag("headwise_attn_output_gate")
    return heads(f, rope=_rope(f, kind), window=window, head_gate=gates)


def _rope(f: Fields, kind: str) -> RopeConfig:
    word, told = _WORDS[kind], _ROPES[kind]
    if f.has("rope_parameters"):
        own = f.section("rope_parameters").get(word)
        if not isinstance(own, Mapping) or own.get("rope_theta") is None:
            f.cannot(f"rope_parameters tell no rope_theta of {word}")
        told = own if isinstance(own, Mapping) else {}
    rope = read_rope_alone(f, told, f.size("head_dim"), share=1.0)
    stretched = rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {stretched!r}: SGLang stretches no rope of this family")
    return rope


FAMILIES = (
    Family(
        "spark2_5",
        _spark,
        {
            "intermediate_size": 6656,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "headwise_attn_output_gate": True,
            "sliding_window": 512,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-6,
        },
    ),
)
