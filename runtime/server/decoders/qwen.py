"""Qwen 2, 2.5 and 3: grouped queries, the last layers of some behind a window."""

from __future__ import annotations

from typing import Any

from runtime.server.config import AttentionConfig, ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, routed_by_softmax, which
from runtime.server.errors import ConfigError


def _qwen2(f: Fields) -> ModelConfig:
    return _dense(f, bias=True)


def _qwen3(f: Fields) -> ModelConfig:
    bias = f.flag("attention_bias")
    return _dense(f, bias=bias, output_bias=bias, qk_norm="head")


def _dense(f: Fields, **own: Any) -> ModelConfig:
    layers, window = f.size("num_hidden_layers"), _window(f)
    kinds = f.per_layer("layer_types", layers, SLIDES)
    first = f.count("max_window_layers")
    if kinds is None:
        kinds = ["sliding" if window and i >= first else "full" for i in range(layers)]
    if "sliding" in kinds and window is None:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    attention = {kind: _seen(f, kind, window, **own) for kind in dict.fromkeys(kinds)}
    return model(f, attention, kinds, everywhere(f, "dense"))


def _seen(f: Fields, kind: str, window: int | None, **own: Any) -> AttentionConfig:
    return heads(f, window=window if kind == "sliding" else None, **own)


def _qwen3_moe(f: Fields) -> ModelConfig:
    bias, window = f.flag("attention_bias"), _window(f)
    kind = "full" if window is None else "sliding"
    dense, step = f.layer_numbers("mlp_only_layers"), f.size("decoder_sparse_step")
    mlps = which(f.size("num_hidden_layers"), lambda i: i not in dense and (i + 1) % step == 0)
    moe = routed_by_softmax(f, "moe_intermediate_size", renormalize=f.flag("norm_topk_prob"))
    attention = heads(f, window=window, bias=bias, output_bias=bias, qk_norm="head")
    return model(f, {kind: attention}, everywhere(f, kind), mlps, moe=moe)


def _window(f: Fields) -> int | None:
    window = f.size_or_none("sliding_window")
    return window if f.flag("use_sliding_window") else None


_COMMON = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "sliding_window": 4096}
_DENSE = {**_COMMON, "intermediate_size": 22016, "num_key_value_heads": 32, "max_window_layers": 28}

FAMILIES = (
    Family("qwen2", _qwen2, _DENSE),
    Family("qwen3", _qwen3, {**_DENSE, "head_dim": 128}),
    Family(
        "qwen3_moe",
        _qwen3_moe,
        {
            **_COMMON,
            "intermediate_size": 6144,
            "num_key_value_heads": 4,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 768,
            "num_experts_per_tok": 8,
            "num_experts": 128,
        },
    ),
)
