"""A longrope: two factors a pair of values, of short batches and of long ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.rope import one_share
from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig

FACTORS, SCALES = ("short_factor", "long_factor"), ("short_mscale", "long_mscale")
_FIRST, _SHARE = "original_max_position_embeddings", "partial_rotary_factor"
_WORDS = ("longrope", "su")  # the second as Phi 3 was first published


def is_long(f: Fields) -> bool:
    told = _told(f)
    return (told.get("rope_type") or told.get("type")) in _WORDS


def read_longrope(f: Fields, width: int, theta: float) -> RopeConfig:
    """Of whole heads, by scales that are told."""
    told, longest = _told(f), f.size("max_position_embeddings")
    parameters: dict[str, Any] = {
        "rope_type": "longrope",
        **{name: _factors(told, name, width // 2) for name in FACTORS},
        **{name: checked_number(f"rope_parameters: {name}", told.get(name)) for name in SCALES},
        "original_max_position_embeddings": _switch(f, told, longest),
    }
    share = told.get(_SHARE, f.number(_SHARE, 1.0))
    one_share(f, share)
    if share != 1:
        f.cannot(f"partial_rotary_factor is {repr(share)[:60]}: models of this family turn whole heads")
    return RopeConfig(width, _base(f, told, theta), longest, parameters=parameters)


def read_long_of_phi(f: Fields, width: int) -> RopeConfig:
    """Of a share of each head, by the one scale that its lengths make."""
    told, longest = _told(f), f.size("max_position_embeddings")
    share = checked_number(_SHARE, told.get(_SHARE, f.number(_SHARE, 1.0)))
    one_share(f, share)
    turned = int(width * share)
    if not 0 < share <= 1 or turned % 2:
        raise ConfigError(f"config.json: {_SHARE} is {share}: of {width} it would turn {turned}")
    first = _switch(f, {_FIRST: f.get(_FIRST)}, longest)  # the section's own is written over
    return _by_lengths(f, told, turned, first)


def read_long_of_heads(f: Fields, width: int) -> RopeConfig:
    """... of whole heads, by lengths of which the section tells the first."""
    told, longest = _told(f), f.size("max_position_embeddings")
    share = told.get(_SHARE, f.number(_SHARE, 1.0))
    one_share(f, share)
    if share != 1:
        f.cannot(f"{_SHARE} is {repr(share)[:60]}: models of this family turn whole heads")
    return _by_lengths(f, told, width, _switch(f, told, longest))


def _by_lengths(f: Fields, told: Mapping[str, Any], turned: int, first: int) -> RopeConfig:
    """By the one scale that its lengths make."""
    longest = f.size("max_position_embeddings")
    if first == 1:
        raise ConfigError(f"config.json: {_FIRST} is 1: its logarithm is divided by")
    stretch = longest / first
    scale = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(first))
    for name, value in {"factor": stretch, "attention_factor": scale, **dict.fromkeys(SCALES, scale)}.items():
        if told.get(name) is not None and told[name] != value:
            f.cannot(f"{name} is {repr(told[name])[:60]}: SGLang and transformers take {value} otherwise")
    parameters = {
        "rope_type": "longrope",
        **{name: _factors(told, name, turned // 2) for name in FACTORS},
        **dict.fromkeys(SCALES, scale),
        _FIRST: first,
    }
    return RopeConfig(turned, _base(f, told, 10000.0), longest, parameters=parameters)


def _told(f: Fields) -> Mapping[str, Any]:
    return f.section("rope_scaling") or f.section("rope_parameters")


def _base(f: Fields, told: Mapping[str, Any], theta: float) -> float:
    base = checked_number(
        "rope_parameters: rope_theta", told.get("rope_theta", f.number("rope_theta", theta))
    )
    if base <= 0:
        raise ConfigError(f"config.json: rope_parameters: rope_theta is {base}: it must be above 0")
    return base


def _factors(told: Mapping[str, Any], name: str, pairs: int) -> list[float]:
    listed, place = told.get(name), f"rope_parameters: {name}"
    if not isinstance(listed, list) or len(listed) != pairs:
        said = repr(listed)[:60]
        raise ConfigError(f"config.json: {place} is {said}: a list of {pairs} numbers is needed")
    found = [checked_number(place, one) for one in listed]
    if min(found) <= 0:
        raise ConfigError(f"config.json: {place} has {min(found)}: it must be above 0")
    return found


def _switch(f: Fields, told: Mapping[str, Any], longest: int) -> int:
    """Where batches begin to be long."""
    name = "original_max_position_embeddings"
    beside, value = f.get(name), told.get(name)
    if type(value) is not int or not 0 < value <= longest:
        said = f"{repr(value)[:60]}: a number of 1 to {longest} is needed"
        raise ConfigError(f"config.json: rope_parameters: {name} is {said}")
    if beside is not None and beside != value:
        f.cannot(f"{name} is {repr(beside)[:60]} beside rope_parameters, which say {value}")
    return value
