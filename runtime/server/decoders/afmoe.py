"""AFMoE: layers behind a window turn and others do not, what attention answers is gated, sigmoid experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, heads, model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, Multipliers
from runtime.server.tensor_names import ServedNames, TensorNames

# srt/models/afmoe.py has one way of each, and transformers' class the same.
_ONE_WAY: Mapping[str, Any] = {
    "attention_bias": False,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "score_func": "sigmoid",
    "route_norm": True,
}
# What transformers takes where a file is silent, and srt/configs/afmoe.py does not.
_TAKEN = {
    "intermediate_size": 6144,
    "moe_intermediate_size": 1408,
    "num_dense_layers": 1,
    "num_experts": 64,
    "num_experts_per_tok": 6,
    "num_shared_experts": 2,
}
_WINDOW = 1024  # and so here
# afmoe.py multiplies by experts without their scales.
_SERVED = ServedNames(
    experts=tuple(f"experts.0.{one}_proj" for one in ("gate_up", "gate", "up", "down")),
    plain_experts=True,
)


def _afmoe(f: Fields) -> ModelConfig:
    _check(f)
    kinds, dense = _kinds(f), _count(f, "num_dense_layers")
    width = f.size("hidden_size")
    return model(
        f,
        _attention(f, kinds),
        kinds,
        which(len(kinds), lambda layer: layer >= dense),
        intermediate_size=_size(f, "intermediate_size"),
        moe=_routed(f),
        norms="paired",
        names=TensorNames(served=_SERVED),
        multipliers=Multipliers(embedding=width**0.5 if f.flag("mup_enabled") else 1.0),
    )


def _check(f: Fields) -> None:
    for name, value in _ONE_WAY.items():
        f.only(name, value)
    for name in ("hidden_act", "score_func", "route_norm"):
        if not f.has(name):
            f.cannot(f"{name} is null: SGLang takes that for another than {_ONE_WAY[name]}")
    for name in _TAKEN:
        if not f.has(name):
            f.cannot(f"{name} is missing: SGLang and transformers take two other values")
    if f.has("n_group") and f.size("n_group") > 1:
        f.cannot(f"n_group is {f.get('n_group')}: SGLang chooses among groups, and transformers among all")
    told = f.section("rope_parameters")
    if told and told.get("rope_theta") is None:
        f.cannot("rope_parameters have no rope_theta: SGLang reads it there")
    if told and f.section("rope_scaling") and f.section("rope_scaling") != told:
        f.cannot("rope_scaling and rope_parameters are both told: SGLang reads rope_parameters")


def _size(f: Fields, name: str) -> int:
    return f.size(name, _TAKEN[name])


def _count(f: Fields, name: str) -> int:
    return f.count(name, _TAKEN[name])


def _kinds(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    told, every = f.per_layer("layer_types", layers, SLIDES), f.size("global_attn_every_n_layers", 1)
    if told is not None:
        return told
    f.cannot("layer_types is missing: SGLang has no windows without it, and transformers has some")
    return ["full" if (layer + 1) % every == 0 else "sliding" for layer in range(layers)]


def _attention(f: Fields, kinds: list[str]) -> dict[str, AttentionConfig]:
    if not f.has("head_dim"):
        raise ConfigError(
            "config.json: head_dim is missing: SGLang divides the hidden size, transformers has 128"
        )
    if "sliding" in kinds and not f.has("sliding_window"):
        f.cannot("sliding_window is missing: SGLang has none without it, and transformers 1024")
    turned = heads(f, qk_norm="head", value_gate=True)
    window = f.size("sliding_window", _WINDOW)
    both = {"full": replace(turned, rope=None), "sliding": replace(turned, window=window)}
    return {kind: both[kind] for kind in kinds}


def _routed(f: Fields) -> MoEConfig:
    intermediate = _size(f, "moe_intermediate_size")
    return MoEConfig(
        _size(f, "num_experts"),
        _size(f, "num_experts_per_tok"),
        intermediate,
        shared_intermediate_size=intermediate * _count(f, "num_shared_experts"),
        scoring="sigmoid",
        correction_bias=True,
        routed_scaling_factor=f.number("route_scale"),
    )


FAMILIES = (
    Family(
        "afmoe",
        _afmoe,
        {
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "global_attn_every_n_layers": 4,
            "route_scale": 1.0,
            "score_func": "sigmoid",
            "route_norm": True,
        },
    ),
)
