"""dots.llm1 and Solar Open by transformers' layers: Qwen3's attention, or a Llama's, and DeepSeek's router.

SGLang makes the experts its own, and the shared ones of Solar Open are whole on every rank.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.by_transformers import by_transformers
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, heads, routed_by_sigmoid, which
from runtime.server.layer_config import MoEConfig


def _dots1(f: Fields) -> ModelConfig:
    layers, dense = f.size("num_hidden_layers"), f.count("first_k_dense_replace")
    first = min(f.count("max_window_layers", layers), layers) if f.has("sliding_window") else layers
    usual = ["full"] * first + ["sliding"] * (layers - first)
    kinds = f.per_layer("layer_types", layers, SLIDES) or usual
    bias = f.flag("attention_bias")
    both = {
        kind: heads(
            f,
            bias=bias,
            output_bias=bias,
            qk_norm="head",
            window=f.size("sliding_window") if kind == "sliding" else None,
        )
        for kind in kinds
    }
    mlps = which(layers, lambda layer: layer >= dense)
    moe = replace(_routed(f), correction_in_fp32=False)
    return by_transformers(f, both, kinds, mlp_kinds=mlps, moe=moe)


def _solar_open(f: Fields) -> ModelConfig:
    layers = f.size("num_hidden_layers")
    attention = heads(f, theta=1e6, bias=f.flag("attention_bias"))
    return by_transformers(
        f,
        {"full": attention},
        mlp_kinds=["moe"] * layers,
        moe=_routed(f),
        intermediate_size=f.size("moe_intermediate_size"),  # of a dense layer, of which it has none
    )


def _routed(f: Fields) -> MoEConfig:
    """By the names that transformers' classes have: of others they read none."""
    for name in ("num_experts", "num_shared_experts"):
        f.only(name)
    f.size("n_shared_experts")
    return routed_by_sigmoid(f)


FAMILIES = (
    Family(
        "dots1",
        _dots1,
        {
            **{"intermediate_size": 10944, "moe_intermediate_size": 1408, "num_key_value_heads": 32},
            **{"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "sliding_window": 4096},
            "max_window_layers": 62,
        },
    ),
    Family(
        "solar_open",
        _solar_open,
        {
            **{"moe_intermediate_size": 1280, "num_key_value_heads": 8, "head_dim": 128},
            **{"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "num_experts_per_tok": 8},
            **{"n_shared_experts": 1, "n_routed_experts": 128, "norm_topk_prob": True},
        },
    ),
)
