"""Arcee's AFM: a Llama whose MLPs have no gate."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model


def _arcee(f: Fields) -> ModelConfig:
    f.only("hidden_act", "relu2")
    f.only("mlp_bias", False)
    f.only("tie_word_embeddings", False)  # srt/models/arcee.py has a head apart, and reads none
    bias = f.flag("attention_bias")
    attention = heads(f, bias=bias, output_bias=bias)
    kinds = everywhere(f, "full"), everywhere(f, "dense")
    return model(f, {"full": attention}, *kinds, gated_mlps=False, activation="silu")


FAMILIES = (
    Family(
        "arcee",
        _arcee,
        {
            "intermediate_size": 18432,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "hidden_act": "relu2",
        },
    ),
)
