"""Mellum 2: heads normed as Qwen 3's, each kind of attention with a rope of its own."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import MLPS, SLIDES, everywhere, heads, model, routed
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import AttentionConfig


def _mellum(f: Fields) -> ModelConfig:
    f.only("tie_word_embeddings", False)  # SGLang's class has a head apart, and reads none
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES) or everywhere(f, "full")
    mlps = f.per_layer("mlp_layer_types", layers, MLPS) or everywhere(f, "moe")
    moe = routed(f, "moe_intermediate_size", renormalize=f.flag("norm_topk_prob"))
    attention = {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)}
    return model(f, attention, kinds, mlps, moe=moe)


def _attention(f: Fields, kind: str) -> AttentionConfig:
    width, bias, window = f.size("head_dim"), f.flag("attention_bias"), f.size_or_none("sliding_window")
    theta = 500000.0 if kind == "full" else 10000.0
    rope = read_rope(f, width, f"{kind}_attention", theta)
    window = window if kind == "sliding" else None
    return heads(f, rope=rope, window=window, bias=bias, output_bias=bias, qk_norm="head")


FAMILIES = (
    Family(
        "mellum",
        _mellum,
        {
            "intermediate_size": 7168,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "sliding_window": 1024,
            "moe_intermediate_size": 896,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
        },
    ),
)
