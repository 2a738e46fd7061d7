"""GPT-BigCode: a GPT-2 of one head of keys and values, whose matrices are stored as usual."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.gpt2 import NAMES, read_gpt
from runtime.server.decoders.gpt_names import GELUS, SMALL

_ONE_WAY = {
    "add_cross_attention": False,
    "multi_query": True,
    "scale_attn_weights": True,
    "tie_word_embeddings": True,
}


def _bigcode(f: Fields) -> ModelConfig:
    """srt/models/gpt_bigcode.py, which reads another matrix of several heads of keys than transformers."""
    f.always(_ONE_WAY)
    f.only("activation_function", *GELUS)
    activation = GELUS.get(str(f.get("activation_function")), "gelu_tanh")
    return read_gpt(f, replace(NAMES, by_columns=False), activation, kv_heads=1)


FAMILIES = (
    Family("gpt_bigcode", _bigcode, {**SMALL, **_ONE_WAY, "activation_function": "gelu_pytorch_tanh"}),
)
