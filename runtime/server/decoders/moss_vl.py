"""MOSS-VL: a Qwen3 some of whose layers attend to nothing but what a tower made of images.

srt/models/moss_vl.py; fields are those of its checkpoints' own config class.
"""

from __future__ import annotations

from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model

NAME = "moss_vl_text"


def _moss_vl(f: Fields) -> ModelConfig:
    """What SGLang turns queries of images by is the table that all others turn by."""
    f.only("tie_word_embeddings", False)
    f.only("hidden_act", "silu")
    _as_told(f)
    seeing, bias = f.layer_numbers("cross_attention_layers"), f.flag("attention_bias")
    kinds = ["cross" if layer in seeing else "full" for layer in range(f.size("num_hidden_layers"))]
    if {*kinds} != {"cross", "full"}:
        f.cannot("cross_attention_layers names none of its layers, or all: graphs of such are not known here")
    own: dict[str, Any] = {"bias": bias, "output_bias": bias, "qk_norm": "head"}
    attention = {"full": heads(f, theta=5e6, **own), "cross": heads(f, rope=None, crosses=True, **own)}
    here = {kind: attention[kind] for kind in dict.fromkeys(kinds)}
    return model(f, here, kinds, ["dense"] * len(kinds), tie_word_embeddings=False)


def _as_told(f: Fields) -> None:
    """Its rope by one of the names that there are: which of several SGLang reads is not known here."""
    f.only("rope_parameters")
    told = f.section("rope_scaling")
    if "type" in told or told.get("rope_type", "default") != "default":
        f.cannot(f"rope_scaling is {told!r:.60}: this runtime computes a rope_type of default")


FAMILIES = (
    Family(
        NAME,
        _moss_vl,
        {
            "vocab_size": 151936,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_act": "silu",
            "max_position_embeddings": 262144,
            "rms_norm_eps": 1e-6,
        },
    ),
)
