"""Llama and Mistral: grouped queries, dense layers."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model


def _llama(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    bias = f.flag("attention_bias")
    return model(
        f, {"full": heads(f, bias=bias, output_bias=bias)}, everywhere(f, "full"), everywhere(f, "dense")
    )


def _mistral(f: Fields) -> ModelConfig:
    f.only("rope_is_neox_style", True)  # of a params.json: srt/utils/hf_transformers/mistral_utils.py
    kind = "sliding" if f.has("sliding_window") else "full"
    attention = heads(f, window=f.size_or_none("sliding_window"))
    return model(f, {kind: attention}, everywhere(f, kind), everywhere(f, "dense"))


FAMILIES = (
    Family(
        "llama",
        _llama,
        {"intermediate_size": 11008, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6},
    ),
    Family(
        "mistral",
        _mistral,
        {
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "sliding_window": 4096,
        },
    ),
)
