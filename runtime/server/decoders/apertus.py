"""Apertus: a Llama whose heads are normed, and whose MLPs have no gate and numbers of their own."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import as_stretched, read_rope, read_rope_alone
from runtime.server.layer_config import RopeConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(served=ServedNames())
_THETA = 12000000.0
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": _THETA,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def _apertus(f: Fields) -> ModelConfig:
    f.only("hidden_act", "xielu")
    for name in ("mlp_bias", "bias", "qkv_bias", "post_norm"):
        f.only(name, False)
    for name in ("qk_norm", "rope_is_neox_style"):
        f.only(name, True)
    f.only("output_vocab_size", f.size("vocab_size"))
    rope, bias = _rope(f), f.flag("attention_bias")
    as_stretched(f, rope)
    attention = heads(f, rope=rope, bias=bias, output_bias=bias, qk_norm="head")
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        norms="named",
        gated_mlps=False,
        activation="xielu",
        names=_NAMES,
    )


def _rope(f: Fields) -> RopeConfig:
    """Null is as its class says, and the base beside it is nobody's."""
    width = f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    is_scaled = bool(f.section("rope_scaling"))
    if not is_scaled and not f.tells("rope_parameters") and f.tells("rope_theta"):
        f.cannot(
            f"rope_theta is {f.number('rope_theta')} without a rope: transformers' class takes a llama3 of "
            "another base"
        )
    if is_scaled or f.has("rope_parameters"):
        return read_rope(f, width, theta=_THETA)
    return read_rope_alone(f, _LLAMA3, width, 1.0)


FAMILIES = (
    Family(
        "apertus",
        _apertus,
        {
            "intermediate_size": 14336,
            "max_position_embeddings": 65536,
            "rms_norm_eps": 1e-5,
            "hidden_act": "xielu",
            "rope_parameters": _LLAMA3,
        },
    ),
)
