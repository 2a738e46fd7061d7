"""OLMo 2, normed behind each part of a layer, and OLMoE: queries and keys normed over all heads."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.layer_config import AttentionConfig


def _olmo2(f: Fields) -> ModelConfig:
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "dense"), norms="after")


def _olmoe(f: Fields) -> ModelConfig:
    f.only("clip_qkv")
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    moe = routed(f, "intermediate_size", renormalize=f.flag("norm_topk_prob"))
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "moe"), moe=moe)


def _attention(f: Fields) -> AttentionConfig:
    bias = f.flag("attention_bias")
    return heads(f, bias=bias, output_bias=bias, qk_norm="all")


FAMILIES = (
    Family(
        "olmo2",
        _olmo2,
        {"intermediate_size": 11008, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
    ),
    Family(
        "olmoe",
        _olmoe,
        {
            "intermediate_size": 2048,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 8,
            "num_experts": 64,
        },
    ),
)
