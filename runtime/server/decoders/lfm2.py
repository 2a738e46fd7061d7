"""LFM2, dense and of experts: short convolutions in most layers, attention in some."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import check_both, heads, layered, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig
from runtime.server.recurrent import ShortConvConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_MIXERS = {"conv": "recurrent", "full_attention": "full"}
_NAMES = TensorNames(
    norm="model.embedding_norm",
    recurrent="conv",
    mlp="feed_forward",
    gate="w1",
    up="w3",
    down="w2",
    attention_out="out_proj",
    q_norm="q_layernorm",
    k_norm="k_layernorm",
    multiplies_apart=True,
    served=ServedNames(),
)
# lfm2_moe.py calls its dense MLPs as others do, and a checkpoint as LFM2's.
_OF_EXPERTS = ServedNames(
    tuple((rf"\.w{of}$", f".{one}_proj") for of, one in ((1, "gate"), (2, "down"), (3, "up"))),
    experts=("experts.0.w1", "experts.0.w2", "experts.0.w3"),
)
_NAMES_OF_EXPERTS = replace(_NAMES, multiplies_apart=False, served=_OF_EXPERTS)


def _lfm2(f: Fields) -> ModelConfig:
    layers = f.size("num_hidden_layers")
    attended = f.layer_numbers("full_attn_idxs") if f.has("full_attn_idxs") else range(layers)
    told = f.per_layer("layer_types", layers, _MIXERS)
    mixers = told or ["full" if i in attended else "recurrent" for i in range(layers)]
    return _model(f, mixers, ["dense"] * layers, intermediate_size=_inner(f))


def _lfm2_moe(f: Fields) -> ModelConfig:
    layers, dense = f.size("num_hidden_layers"), f.count("num_dense_layers")
    mixers = f.per_layer("layer_types", layers, _MIXERS)
    if mixers is None:
        f.cannot("layer_types is missing: this model has no layers without it")
    return _model(
        f,
        mixers or ["full"] * layers,
        which(layers, lambda i: i >= dense),
        moe=_routed(f),
        names=_NAMES_OF_EXPERTS,
    )


def _model(f: Fields, mixers: list[str], mlps: list[str], **own: Any) -> ModelConfig:
    check_both(f, mixers)
    width, tied = f.size("hidden_size"), f.spelled("tie_embedding", "tie_word_embeddings")
    conv = ShortConvConfig(width, f.size("conv_L_cache"), f.flag("conv_bias"))
    return layered(
        f,
        {"full": _attention(f)},
        mixers,
        mlps,
        rms_eps=f.number("norm_eps"),
        norms="operator",
        names=own.pop("names", _NAMES),
        recurrent=conv if "recurrent" in mixers else None,
        tie_word_embeddings=f.flag(tied),
        holds_head=True,
        **own,
    )


def _attention(f: Fields) -> AttentionConfig:
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    return heads(f, theta=1e6, qk_norm="head")


def _inner(f: Fields) -> int:
    """Two thirds of what is told, made a multiple."""
    told = f.size(f.spelled("block_ff_dim", "intermediate_size"))
    if not f.flag("block_auto_adjust_ff_dim"):
        return told
    adjusted, multiple = int(2 * told / 3), f.size("block_multiple_of")
    if f.has("block_ffn_dim_multiplier"):
        adjusted = int(f.number("block_ffn_dim_multiplier") * adjusted)
        adjusted = -(-adjusted // multiple) * multiple
    if adjusted < 1:
        raise ConfigError(f"config.json: intermediate_size is {told}: nothing is left of it")
    return adjusted


def _routed(f: Fields) -> MoEConfig:
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=f.size("moe_intermediate_size"),
        scoring="sigmoid",
        renormalize=f.flag("norm_topk_prob"),
        least_sum=1e-6,
        correction_bias=f.flag("use_expert_bias"),
        routed_scaling_factor=f.number("routed_scaling_factor", 1.0),
    )


_COMMON = {
    "vocab_size": 65536,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128000,
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "tie_word_embeddings": True,
}

FAMILIES = (
    Family(
        "lfm2",
        _lfm2,
        {
            **_COMMON,
            "hidden_size": 2560,
            "intermediate_size": 12288,
            "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": True,
        },
    ),
    Family(
        "lfm2_moe",
        _lfm2_moe,
        {
            **_COMMON,
            "hidden_size": 2048,
            "intermediate_size": 7168,
            "moe_intermediate_size": 1792,
            "num_dense_layers": 2,
            "num_experts_per_tok": 4,
            "num_experts": 32,
            "use_expert_bias": True,
            "routed_scaling_factor": 1.0,
            "norm_topk_prob": True,
        },
    ),
)
