"""Qwen 2, 2.5 and 3, and MiMo, which is a 2: grouped queries, some layers behind a window."""

from __future__ import annotations

from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, routed, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig


def _qwen3(f: Fields) -> ModelConfig:
    bias = f.flag("attention_bias")
    return _dense(f, bias=bias, output_bias=bias, qk_norm="head")


def _dense(f: Fields, **own: Any) -> ModelConfig:
    layers, window = f.size("num_hidden_layers"), _window(f)
    kinds = f.per_layer("layer_types", layers, SLIDES)
    first = f.count("max_window_layers")
    if kinds is None:
        kinds = ["sliding" if window and i >= first else "full" for i in range(layers)]
    return model(f, _by_kind(f, kinds, window, **own), kinds, everywhere(f, "dense"))


def _by_kind(f: Fields, kinds: list[str], window: int | None, **own: Any) -> dict[str, AttentionConfig]:
    if "sliding" in kinds and window is None:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    windows = {kind: window if kind == "sliding" else None for kind in kinds}
    return {kind: heads(f, window=seen, **own) for kind, seen in windows.items()}


def _qwen3_moe(f: Fields) -> ModelConfig:
    f.only("tie_word_embeddings", False)
    bias, window = f.flag("attention_bias"), _window(f)
    kind = "full" if window is None else "sliding"
    attention = heads(f, window=window, bias=bias, output_bias=bias, qk_norm="head")
    return model(f, {kind: attention}, everywhere(f, kind), _sparse(f), moe=_routed(f))


def _sparse(f: Fields) -> list[str]:
    dense, step = f.layer_numbers("mlp_only_layers"), f.size("decoder_sparse_step")
    return which(f.size("num_hidden_layers"), lambda i: i not in dense and (i + 1) % step == 0)


def _routed(f: Fields, **own: Any) -> MoEConfig:
    return routed(f, "moe_intermediate_size", renormalize=f.flag("norm_topk_prob"), **own)


def _window(f: Fields) -> int | None:
    if f.flag("use_sliding_window"):
        return f.size_or_none("sliding_window")
    f.count("sliding_window")  # qwen2_moe's class writes 0
    return None


_COMMON = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "sliding_window": 4096}
_DENSE = {**_COMMON, "intermediate_size": 22016, "num_key_value_heads": 32, "max_window_layers": 28}


FAMILIES = (
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
