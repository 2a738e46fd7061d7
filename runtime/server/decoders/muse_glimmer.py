"""Muse Glimmer: what is embedded is normed, and each answer, too; layers behind a window turn, others do not,
and what attention answers is gated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Multipliers

NAME = "muse_glimmer_text"
# What transformers' class takes where a file is silent. SGLang's asks for it, or takes another, or what the
# whole file says: srt/configs/muse_glimmer.py.
_TAKEN: Mapping[str, Any] = {
    "intermediate_size": 19968,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_activation": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "post_norm_eps": 1e-8,
    "sliding_window": 2048,
    "qk_scale_factor": 3.87,
    "output_multiplier": 0.19611613513818404,
    "final_logit_softcapping": 20.0,
    "layer_types": None,
    "layer_rope_theta": None,
}
# Of SGLang's class alone: transformers' has one way of each.
OF_SGLANG: Mapping[str, Any] = {
    "use_qk_norm": True, "use_attn_output_gate": True, "normalize_tok_embeddings": True,
}  # fmt: skip
_HEAD_PADDING, _EVERY = 128, 4


def _muse_glimmer(f: Fields) -> ModelConfig:
    _check(f)
    layers = f.size("num_hidden_layers")
    kinds = f.per_layer("layer_types", layers, SLIDES) or [
        "sliding" if slides else "full" for slides in _slide(layers)
    ]
    return model(
        f,
        _attention(f, kinds),
        kinds,
        everywhere(f, "dense"),
        activation="silu",
        norms="sandwich",
        centred_norms=True,
        last_norm_whole=True,
        answer_eps=f.number("post_norm_eps"),
        norms_embedding=True,
        head_padding=_HEAD_PADDING,
        multipliers=Multipliers(
            logits=f.number("output_multiplier"), logit_cap=f.positive_or_none("final_logit_softcapping")
        ),
    )


def _slide(layers: int) -> list[bool]:
    """Where nothing is told: all but each fourth, of which the last is one."""
    return [(layers - 1 - layer) % _EVERY != 0 for layer in range(layers)]


def _check(f: Fields) -> None:
    for name in _TAKEN:
        if not f.tells(name):
            f.cannot(f"{name} is missing: SGLang asks its text for it, or has another")
    f.only("hidden_activation", "silu")
    f.only("attention_bias", False)
    f.only("tie_word_embeddings", False)
    f.only("rope_scaling")
    for name, value in OF_SGLANG.items():
        if f.get(name) is not value:
            f.cannot(f"{name} is {f.get(name)!r:.60}: transformers' class has {value} alone")
    rope = f.section("rope_parameters")
    if rope.get("rope_theta") is None:
        f.cannot("rope_parameters have no rope_theta: SGLang reads it there")
    if rope.get("rope_type", "default") != "default":
        f.cannot(f"rope_type is {rope['rope_type']!r:.60}: SGLang stretches no rope of this family")


def _attention(f: Fields, kinds: list[str]) -> dict[str, AttentionConfig]:
    width, turns = f.size("head_dim"), _turns(f, len(kinds))
    turned = heads(f, width=width, qk_norm="bare", value_gate=True)
    turned = replace(turned, scale=f.number("qk_scale_factor") * width**-0.5)
    window = f.size("sliding_window")
    found = {}
    for kind in dict.fromkeys(kinds):
        of_kind = {turn for one, turn in zip(kinds, turns, strict=True) if one == kind}
        if len(of_kind) > 1:
            f.cannot(f"layer_rope_theta: of layers that are {kind} some turn, and some do not")
        rope = turned.rope if True in of_kind else None
        found[kind] = replace(turned, rope=rope, window=window if kind == "sliding" else None)
    return found


def _turns(f: Fields, layers: int) -> list[bool]:
    """By any number but 0, whatever it is: all turn by rope_parameters."""
    told = f.get("layer_rope_theta")
    if told is None:
        return _slide(layers)
    if not isinstance(told, list) or len(told) < layers:
        raise ConfigError(f"config.json: layer_rope_theta is {told!r:.60}: {layers} numbers are needed")
    return [checked_number("layer_rope_theta", one) != 0 for one in told[:layers]]


FAMILIES = (Family(NAME, _muse_glimmer, {**_TAKEN, **OF_SGLANG}),)
