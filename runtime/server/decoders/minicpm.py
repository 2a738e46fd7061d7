"""MiniCPM: a Llama whose embedding, answers and logits are scaled by the sizes of a smaller model."""

from __future__ import annotations

import math

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.longrope import is_long, read_long_of_heads
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.layer_config import AttentionConfig, Multipliers
from runtime.server.tensor_names import ServedNames, TensorNames

NAMES = TensorNames(served=ServedNames(plain=("lm_head",)))


def _minicpm(f: Fields) -> ModelConfig:
    """srt/models/minicpm.py: of a file that is no minicpm_sala every layer attends to all tokens."""
    f.only("hidden_act", "silu")
    f.only("attention_bias", False)
    f.only("num_experts", 0)
    for name in ("sparse_config", "mixer_types"):
        f.only(name)
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        activation="silu",
        multipliers=scaled_by_smaller(f),
        names=NAMES,
    )


def _attention(f: Fields) -> AttentionConfig:
    width = f.size("hidden_size") // f.size("num_attention_heads")
    f.only("head_dim", width)  # which is read since 0.5.19
    if is_long(f):
        return heads(f, width=width, rope=read_long_of_heads(f, width), turns_in_fp32=True)
    return heads(f, width=width, turns_in_fp32=True)


def scaled_by_smaller(f: Fields) -> Multipliers:
    base = f.positive("dim_model_base")
    return Multipliers(
        embedding=float(f.number("scale_emb")),
        residual=f.number("scale_depth") / math.sqrt(f.size("num_hidden_layers")),
        logits=base / f.size("hidden_size"),
    )


FAMILIES = (
    Family(
        "minicpm",
        _minicpm,
        {
            "intermediate_size": 11008,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True,
            "scale_emb": 1,
            "dim_model_base": 1,
            "scale_depth": 1,
        },
    ),
)
