"""Jais 2 by transformers' own layers: a Llama whose norms take the mean away, with MLPs without a gate and
biases everywhere."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.by_transformers import by_transformers
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads


def _jais2(f: Fields) -> ModelConfig:
    f.only("hidden_act", "relu2")
    count, bias = f.size("num_attention_heads"), f.flag("attention_bias")
    if f.size("hidden_size") % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    return by_transformers(
        f,
        {"full": heads(f, bias=bias, output_bias=bias)},
        rms_eps=f.number("layer_norm_eps"),
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=f.flag("mlp_bias"),
        activation="silu",
    )


FAMILIES = (
    Family(
        "jais2",
        _jais2,
        {
            **{"intermediate_size": 26624, "hidden_act": "relu2", "max_position_embeddings": 8192},
            **{"layer_norm_eps": 1e-5, "attention_bias": True, "mlp_bias": True},
        },
    ),
)
