"""Orion: a Llama whose norms take the mean away."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames())


def _orion(f: Fields) -> ModelConfig:
    f.only("hidden_act", "silu")
    f.only("attention_bias", False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    return model(
        f,
        {"full": heads(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        activation="silu",
        mean_norms=True,
        norm_biases=True,
        names=_NAMES,
    )


FAMILIES = (
    Family(
        "orion",
        _orion,
        {
            "intermediate_size": 15360,
            "num_key_value_heads": 40,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        },
    ),
)
