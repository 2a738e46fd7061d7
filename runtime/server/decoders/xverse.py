"""XVERSE: a Llama whose head is never the embedding."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders import xverse_moe
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import as_stretched
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames(plain=("lm_head",)))


def _xverse(f: Fields) -> ModelConfig:
    """srt/models/xverse.py takes what it reads of a Llama's file."""
    f.only("hidden_act", "silu")
    for name in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        f.only(name, False)
    f.only("num_experts", 0)
    f.only("rope_is_neox_style", True)
    attention = heads(f)
    as_stretched(f, attention.rope)
    kinds = everywhere(f, "full"), everywhere(f, "dense")
    return model(f, {"full": attention}, *kinds, activation="silu", names=_NAMES)


FAMILIES = (
    Family(
        "xverse",
        _xverse,
        {"intermediate_size": 11008, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6},
        {xverse_moe.ARCHITECTURE: xverse_moe.NAME},
    ),
)
