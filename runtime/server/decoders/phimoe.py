"""Phi-3.5-MoE: norms by a mean and with biases, a head with one, two experts of those near the best."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.longrope import is_long, read_longrope
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.layer_config import AttentionConfig

_THETA = 1e6


def _phimoe(f: Fields) -> ModelConfig:
    for name, value in (
        *(("tie_word_embeddings", False), ("lm_head_bias", True)),
        *(("num_experts_per_tok", 2), ("router_jitter_noise", 0.01)),
    ):
        f.only(name, value)
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "moe"),
        moe=routed(f, "intermediate_size", scoring="near best", renormalize=False),
        mean_norms=True,
        norm_biases=True,
        head_bias=True,
    )


def _attention(f: Fields) -> AttentionConfig:
    longest, bias = f.size("max_position_embeddings"), f.flag("attention_bias")
    if f.has("sliding_window") and f.size("sliding_window") < longest:
        f.cannot(f"sliding_window is {f.get('sliding_window')}: SGLang has no windows in this family")
    width = f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    if is_long(f):
        return heads(f, bias=bias, output_bias=bias, rope=read_longrope(f, width, _THETA))
    found = heads(f, theta=_THETA, bias=bias, output_bias=bias)
    assert found.rope is not None
    stretched = found.rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {stretched!r}: models of this family have longrope or none")
    return found


FAMILIES = (
    Family(
        "phimoe",
        _phimoe,
        {
            "intermediate_size": 6400,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 2,
            "num_local_experts": 16,
            "lm_head_bias": False,
            "router_jitter_noise": 0.01,
        },
    ),
)
