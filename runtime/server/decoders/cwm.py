"""CWM and Ministral by transformers' own layers: Llamas, most of whose layers see the last tokens alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.by_transformers import by_transformers
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, heads

_STRETCHED: Mapping[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 1e6,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_EVERY = 4


def _cwm(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    f.only("attention_bias", False)
    if f.is_null("rope_parameters") and not f.has("rope_scaling"):
        f.cannot("rope_parameters is null: its class then stretches a rope that is not told")
    layers = f.size("num_hidden_layers")
    usual = ["sliding" if layer % _EVERY else "full" for layer in range(layers)]
    return _behind_windows(f, f.per_layer("layer_types", layers, SLIDES) or usual, 1e6)


def _ministral(f: Fields) -> ModelConfig:
    layers = f.size("num_hidden_layers")
    usual = ["sliding" if f.has("sliding_window") else "full"] * layers
    return _behind_windows(f, f.per_layer("layer_types", layers, SLIDES) or usual, 10000.0)


def _behind_windows(f: Fields, kinds: list[str], theta: float) -> ModelConfig:
    """A layer of SGLang's sees a token more behind a window than one of transformers', and than one here."""
    if not f.has("head_dim"):
        f.cannot("head_dim is not told: classes before transformers 5.12 have no other in its place")
    full = heads(f, theta=theta)
    both = {"full": full}
    if "sliding" in kinds:
        both["sliding"] = replace(full, window=f.size("sliding_window"))
    read = by_transformers(f, both, kinds)
    return replace(read, attention={kind: both[kind] for kind in kinds})


FAMILIES = (
    Family(
        "cwm",
        _cwm,
        {
            **{"intermediate_size": 21504, "num_key_value_heads": 8, "head_dim": 128},
            **{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "sliding_window": 8192},
            "rope_parameters": _STRETCHED,
        },
    ),
    Family(
        "ministral",
        _ministral,
        {
            **{"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072},
            **{"rms_norm_eps": 1e-6, "sliding_window": 4096},
        },
    ),
)
