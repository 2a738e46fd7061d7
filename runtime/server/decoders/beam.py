"""Beam: layers behind a window turn and others grow with their position, what attention answers is gated, and
each answer counts less the deeper it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import MLPS, SLIDES, heads, model, which
from runtime.server.decoders.rope import read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, Multipliers, PowerGrowth, RopeConfig

# srt/configs/beam.py takes no other.
_ONE_WAY: Mapping[str, Any] = {
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "norm_topk_prob": True,
}
_BEHIND = "sliding_attention"
_THETA, _EVERY, _DENSE_FIRST = 10000.0, 6, 3
_GROWTH = PowerGrowth(power=0.1, length=2048, shift=1)


def _beam(f: Fields) -> ModelConfig:
    _check(f)
    kinds, mlps = _kinds(f), _mlps(f)
    return model(
        f,
        _attention(f, kinds),
        kinds,
        mlps,
        moe=_routed(f) if "moe" in mlps else None,
        norms="counted",
        multipliers=Multipliers(logit_cap=f.positive_or_none("final_logit_softcapping")),
    )


def _check(f: Fields) -> None:
    f.always(_ONE_WAY)
    if not f.tells("max_position_embeddings"):
        f.cannot("max_position_embeddings is missing: SGLang takes 1048576, and transformers 8192")
    f.only("rope_scaling")


def _kinds(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    told = _whole_list(f, "layer_types", SLIDES)
    if told is not None:
        return told
    slides = ["sliding" if (layer + 1) % _EVERY else "full" for layer in range(layers)]
    return [*slides[:-1], "full"]


def _mlps(f: Fields) -> list[str]:
    told = _whole_list(f, "mlp_layer_types", MLPS)
    return told or which(f.size("num_hidden_layers"), lambda layer: layer >= _DENSE_FIRST)


def _whole_list(f: Fields, name: str, kinds: Mapping[str, str]) -> list[str] | None:
    layers = f.size("num_hidden_layers")
    told = f.per_layer(name, layers, kinds)
    if told is not None and len(f.get(name)) != layers:
        raise ConfigError(f"config.json: {name} has {len(f.get(name))} names for {layers} layers")
    return told


def _attention(f: Fields, kinds: list[str]) -> dict[str, AttentionConfig]:
    width = f.size("head_dim")
    if width % 2:
        raise ConfigError(f"config.json: head_dim is {width}: an even number is needed")
    own = heads(f, width=width, rope=None, qk_norm="head", value_gate=True, gate_bias=True)
    both = {"full": replace(own, growth=_GROWTH)}
    if "sliding" in kinds:
        both["sliding"] = replace(own, rope=_rope(f, width), window=_window(f))
    return {kind: both[kind] for kind in kinds}


def _window(f: Fields) -> int:
    window = f.size("sliding_window")
    if window < 2:
        f.cannot(f"sliding_window is {window}: SGLang needs 2 or more")
    return window


def _rope(f: Fields, width: int) -> RopeConfig:
    """Of a dictionary by kinds of layers, in which full ones have none."""
    told = f.section("rope_parameters")
    others = [str(name)[:60] for name in told if name not in SLIDES]
    if others:
        raise ConfigError(f"config.json: rope_parameters have {others[0]!r}: those of each kind are needed")
    if told.get("full_attention") is not None:
        f.cannot("rope_parameters turn full_attention: SGLang's layers of it turn nothing")
    own = told.get(_BEHIND)
    if own is not None and not isinstance(own, Mapping):
        raise ConfigError(f"config.json: rope_parameters: {_BEHIND} is {own!r:.60}: an object is needed")
    if told and (not own or own.get("rope_theta") is None):
        f.cannot(f"rope_parameters tell no rope_theta of {_BEHIND}: transformers asks for it")
    own = own or {}
    if own.get("rope_type", "default") != "default":
        f.cannot(f"rope_type is {own['rope_type']!r:.60}: SGLang has the default alone")
    return read_rope_alone(f, {"rope_theta": own.get("rope_theta", _THETA)}, width, share=1.0)


def _routed(f: Fields) -> MoEConfig:
    moe = MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=f.size("moe_intermediate_size"),
        scoring="sigmoid",
        correction_bias=True,
        num_groups=f.size("n_group"),
        top_k_groups=f.size("topk_group"),
        routed_scaling_factor=f.number("routed_scaling_factor"),
        router_in_fp32=True,
        keeps_rows=True,
    )
    of_group = moe.num_experts // moe.num_groups
    if moe.num_experts % moe.num_groups or of_group < 2:
        f.cannot(f"num_experts is {moe.num_experts}: SGLang needs n_group {moe.num_groups} of two or more")
    if moe.top_k_groups > moe.num_groups:
        f.cannot(f"topk_group is {moe.top_k_groups} of {moe.num_groups} groups")
    if moe.top_k > moe.top_k_groups * of_group:
        f.cannot(f"num_experts_per_tok is {moe.top_k} of the {moe.top_k_groups * of_group} in chosen groups")
    return moe


FAMILIES = (
    Family(
        "beam",
        _beam,
        {
            **_ONE_WAY,
            "vocab_size": 151936,
            "hidden_size": 5120,
            "intermediate_size": 20480,
            "num_hidden_layers": 52,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-6,
            "sliding_window": 512,
            "moe_intermediate_size": 2560,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "n_group": 8,
            "topk_group": 4,
            "routed_scaling_factor": 2.5,
            "final_logit_softcapping": 30.0,
        },
    ),
)
