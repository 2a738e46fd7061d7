"""Tele-FLM: a Llama whose embedding and logits are scaled by the sizes of a smaller model."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import as_stretched
from runtime.server.layer_config import NO_MULTIPLIERS, Multipliers
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames())


def _teleflm(f: Fields) -> ModelConfig:
    """srt/models/teleflm.py is SGLang's Llama, which reads `bias` as attention's."""
    f.only("hidden_act", "silu")
    for name in ("attention_bias", "mlp_bias", "bias", "qkv_bias"):
        f.only(name, False)
    f.only("rope_is_neox_style", True)
    attention = heads(f)
    as_stretched(f, attention.rope)
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        activation="silu",
        multipliers=_multipliers(f),
        names=_NAMES,
    )


def _multipliers(f: Fields) -> Multipliers:
    if not f.flag("use_mup"):
        return NO_MULTIPLIERS
    scale = f.positive("mup_scale_factor")
    return Multipliers(embedding=float(f.number("input_mult")), logits=f.number("output_mult") / scale)


FAMILIES = (
    Family(
        "TeleFLM",
        _teleflm,
        {
            "intermediate_size": 11008,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "use_mup": False,
            "mup_scale_factor": 1.0,
            "input_mult": 1.0,
            "output_mult": 1.0,
        },
    ),
)
