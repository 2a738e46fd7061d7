"""gpt-oss: every other layer behind a window, sinks, experts with biases and a clamped gate."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, routed
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import AttentionConfig

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def _gpt_oss(f: Fields) -> ModelConfig:
    f.only("tie_word_embeddings", False)  # SGLang's class has a head apart, and reads none
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES) or (["sliding", "full"] * layers)[:layers]
    attention = {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)}
    moe = routed(
        f,
        "intermediate_size",
        router_bias=True,
        expert_bias=True,
        swiglu_alpha=f.number("swiglu_alpha"),
        swiglu_limit=f.number("swiglu_limit"),
    )
    return model(f, attention, kinds, everywhere(f, "moe"), moe=moe)


def _attention(f: Fields, kind: str) -> AttentionConfig:
    bias = f.flag("attention_bias")
    rope = read_rope(f, f.size("head_dim"), theta=150000.0)
    window = f.size("sliding_window") if kind == "sliding" else None
    return heads(f, rope=rope, window=window, bias=bias, output_bias=bias, sinks=True)


FAMILIES = (
    Family(
        "gpt_oss",
        _gpt_oss,
        {
            "intermediate_size": 2880,
            "head_dim": 64,
            "num_key_value_heads": 8,
            "sliding_window": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 4,
            "num_local_experts": 128,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
            "attention_bias": True,
            "rope_parameters": _YARN,
        },
    ),
)
