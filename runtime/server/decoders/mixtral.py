"""Mixtral: every layer of experts, all behind one window where there is one.

Of a class of its own each expert is whole on one rank: quantized, or where a file names it.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed


def _mixtral(f: Fields) -> ModelConfig:
    kind = "sliding" if f.has("sliding_window") else "full"
    return _read(f, kind, f.size_or_none("sliding_window"))


def _read(f: Fields, kind: str, window: int | None) -> ModelConfig:
    """srt/models/mixtral.py, too, makes heads as wide as they share rows, turns by a base alone, and has a
    head of its own."""
    f.only("tie_word_embeddings", False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    attention = heads(f, window=window, theta=1e6)
    assert attention.rope is not None
    stretched, theta = attention.rope.parameters["rope_type"], attention.rope.theta
    if stretched != "default":
        f.cannot(f"rope_type is {repr(stretched)[:60]}: SGLang stretches no rope of this family")
    if theta != int(theta):
        f.cannot(f"rope_theta is {theta}: SGLang takes its whole part")
    moe = routed(f, "intermediate_size")
    kinds = everywhere(f, kind), everywhere(f, "moe")
    return model(f, {kind: attention}, *kinds, moe=moe)


_OWN = {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
}

FAMILIES = (Family("mixtral", _mixtral, _OWN),)
