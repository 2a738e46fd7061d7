"""Solar Pro: a Llama, some of whose layers are given a share of what earlier ones were given."""

from __future__ import annotations

from itertools import pairwise

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import as_stretched
from runtime.server.errors import ConfigError
from runtime.server.skips import SkipsConfig

_KEEPS, _MIXES, _SHARES = ("bskcn_1", "bskcn_2"), ("bskcn_3", "bskcn_4"), "bskcn_tv"
# What its config class says is not known of each: srt/models/solar.py asks for most of these.
_NEEDED = (
    *("num_key_value_heads", "intermediate_size", "max_position_embeddings", "rms_norm_eps"),
    *("tie_word_embeddings", *_KEEPS, *_MIXES, _SHARES),
)


def _solar(f: Fields) -> ModelConfig:
    for name in _NEEDED:
        if not f.has(name):
            raise ConfigError(
                f"config.json: {name} is missing: what it is then, the checkpoint's own class says"
            )
    f.only("hidden_act", "silu")
    f.only("mlp_bias", False)
    f.only("logit_scale")
    f.size_or_none("sliding_window")  # srt/models/solar.py has none: layers see all
    bias = f.flag("attention_bias") or f.flag("bias")
    attention = heads(f, bias=bias, output_bias=bias)
    as_stretched(f, attention.rope)
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        activation="silu",
        skips=_skips(f),
    )


def _skips(f: Fields) -> SkipsConfig:
    keeps, mixes = ([_layers(f, name) for name in names] for names in (_KEEPS, _MIXES))
    for kept, mixed, names in zip(keeps, mixes, zip(_KEEPS, _MIXES, strict=True), strict=True):
        if 0 in kept:
            f.cannot(f"{names[0]} has layer 0: SGLang keeps no residual of it")
        early = [layer for layer in mixed if not any(one < layer for one in kept)]
        if early:
            f.cannot(f"{names[1]} has layer {early[0]}, before which {names[0]} has none")
    told = f.get(_SHARES)
    if not isinstance(told, list) or len(told) != len(_MIXES):
        raise ConfigError(f"config.json: {_SHARES} is {told!r:.60}: two numbers are needed")
    return SkipsConfig(tuple(keeps), tuple(mixes), checked_number(_SHARES, told[1]))


def _layers(f: Fields, name: str) -> tuple[int, ...]:
    listed = f.get(name)
    is_rising = isinstance(listed, list) and all(type(one) is int for one in listed)
    if not is_rising or any(one >= other for one, other in pairwise([-1, *listed])):
        raise ConfigError(f"config.json: {name} is {listed!r:.60}: layers in their order are needed")
    return tuple(listed)


FAMILIES = (Family("solar", _solar, {"hidden_act": "silu", "attention_bias": False}),)
