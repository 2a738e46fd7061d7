"""Laguna: heads normed and turned by kind of layer, answers by a softplus of the token, sigmoid experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import MLPS, SLIDES, everywhere, heads, model, routed, which
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, RopeConfig
from runtime.server.tensor_names import TensorNames

_WORDS = {kind: word for word, kind in SLIDES.items()}
_ONE_WAY: Mapping[str, Any] = {
    "moe_apply_router_weight_on_input": False,
    "moe_router_score_func": "sigmoid",
    "tie_word_embeddings": False,  # SGLang leaves the head unread where it is
}


def _laguna(f: Fields) -> ModelConfig:
    for name, value in _ONE_WAY.items():
        f.only(name, value)
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES) or everywhere(f, "full")
    counts = _head_counts(f, kinds)
    return model(
        f,
        {kind: _attention(f, kind, count) for kind, count in counts.items()},
        kinds,
        f.per_layer("mlp_layer_types", layers, MLPS) or which(layers, bool),
        moe=_routed(f),
        names=TensorNames(shared="shared_expert"),
    )


def _head_counts(f: Fields, kinds: list[str]) -> dict[str, int]:
    """As many in every layer of a kind."""
    listed, plain = f.get("num_attention_heads_per_layer"), f.size("num_attention_heads")
    told = [plain] * len(kinds) if listed is None else listed
    if not isinstance(told, list) or len(told) != len(kinds) or not all(type(one) is int for one in told):
        where = "config.json: num_attention_heads_per_layer"
        raise ConfigError(f"{where} is {repr(listed)[:60]}: {len(kinds)} numbers are needed")
    found: dict[str, int] = {}
    for layer, (kind, count) in enumerate(zip(kinds, told, strict=True)):
        if found.setdefault(kind, count) != count:
            f.cannot(f"num_attention_heads_per_layer of layer {layer} is not that of others of its kind")
    return found


def _attention(f: Fields, kind: str, count: int) -> AttentionConfig:
    bias, window = f.flag("attention_bias"), f.size("sliding_window")
    return heads(
        f,
        count=count,
        rope=_rope(f, kind),
        window=window if kind == "sliding" else None,
        bias=bias,
        output_bias=bias,
        qk_norm="head",
        softplus_gate=_gate(f),
    )


def _gate(f: Fields) -> Literal["head", "value"]:
    f.only("gating", True, "per-head", "per-element")
    return "value" if f.get("gating") == "per-element" else "head"


def _rope(f: Fields, kind: str) -> RopeConfig:
    """Of each kind by itself: where a file is silent, SGLang's class has other ones than transformers'."""
    word, whole = _WORDS[kind], f.section("rope_parameters")
    told = whole.get(word)
    if not isinstance(told, Mapping):
        f.cannot(f"rope_parameters are not told of {word} by itself")
        told = {}
    return read_rope_alone(f, told, f.size("head_dim"), share=1.0)


def _routed(f: Fields) -> MoEConfig:
    cap = f.number("moe_router_logit_softcapping")
    return routed(
        f,
        "moe_intermediate_size",
        shared_intermediate_size=f.size("shared_expert_intermediate_size"),
        scoring="sigmoid",
        correction_bias=True,
        router_in_fp32=True,
        router_cap=cap if cap > 0 else None,
        routed_scaling_factor=f.number("moe_routed_scaling_factor"),
    )


FAMILIES = (
    Family(
        "laguna",
        _laguna,
        {
            "intermediate_size": 8192,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "sliding_window": 512,
            "gating": True,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "moe_routed_scaling_factor": 1.0,
            "moe_router_logit_softcapping": 0.0,
        },
    ),
)
