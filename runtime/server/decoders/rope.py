"""Rotary embeddings, in either of the spellings that config.json has had for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig

_KINDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
_SIZES_ALONE: dict[str, tuple[str, ...]] = {"dynamic": ("factor",)}
_NUMBERS = (
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
    "original_max_position_embeddings",
)
_STRETCHED = ("llama3", "yarn")


def read_rope(
    f: Fields, width: int, kind: str | None = None, theta: float = 10000.0, share: float | None = None
) -> RopeConfig:
    """Of heads `width` wide; all of each but in families with a `share`. `kind`: of layers alone."""
    told = _told(f, kind)
    parameters = {name: value for name, value in told.items() if name not in ("type", "rope_type")}
    parameters["rope_type"] = told.get("rope_type") or told.get("type") or "default"
    parameters.setdefault("rope_theta", f.number("rope_theta", theta))
    parameters.setdefault("partial_rotary_factor", f.number("partial_rotary_factor", share or 1.0))
    _check(f, parameters)
    one_share(f, parameters["partial_rotary_factor"])
    if share is None and parameters["partial_rotary_factor"] != 1:
        turned_share = parameters["partial_rotary_factor"]
        f.cannot(f"partial_rotary_factor is {turned_share}: models of this family turn whole heads")
    longest = f.size("max_position_embeddings")
    if parameters["rope_type"] in _STRETCHED:
        first = parameters.setdefault("original_max_position_embeddings", longest)
        checked_number("original_max_position_embeddings", first)
    if parameters["rope_type"] == "dynamic":
        f.sizes_alone("rope_type is 'dynamic': SGLang stretches all positions, transformers long requests'")
        longest = int(longest * parameters["factor"])  # srt/layers/rotary_embedding: rows of its table
    part = parameters.pop("partial_rotary_factor")
    turned = int(width * part)
    if turned % 2:
        f.cannot(f"partial_rotary_factor is {part}: of {width} would turn {turned}, which are no pairs")
    return RopeConfig(turned, parameters["rope_theta"], longest, parameters=parameters)


def one_share(f: Fields, found: Any) -> None:
    """Of a head that is turned: a file may tell it in two places."""
    told = f.get("partial_rotary_factor")
    if f.tells("partial_rotary_factor") and told != found:
        beside = f"{told!r:.60} beside its rope's {found!r:.60}"
        f.cannot(f"partial_rotary_factor is {beside}: SGLang takes the first in some classes")


def _told(f: Fields, kind: str | None) -> Mapping[str, Any]:
    whole = _without_sections(f.section("rope_scaling") or f.section("rope_parameters"))
    if kind is not None and kind in whole:
        if not isinstance(whole[kind], Mapping):
            raise ConfigError(f"config.json: rope_parameters: {kind} is no object")
        return dict(whole[kind])
    return whole


def _without_sections(told: Mapping[str, Any]) -> Mapping[str, Any]:
    """Text has one position where an image has three: every section then turns by the same."""
    sections = told.get("mrope_section")
    if sections is None:
        return told
    if not isinstance(sections, list) or not all(type(one) is int and one > 0 for one in sections):
        raise ConfigError(
            f"config.json: mrope_section is {repr(sections)[:60]}: a list of whole numbers is needed"
        )
    kept = {name: value for name, value in told.items() if name not in ("mrope_section", "mrope_interleaved")}
    for spelling in ("type", "rope_type"):
        if kept.get(spelling) == "mrope":
            kept[spelling] = "default"
    return kept


def _check(f: Fields, parameters: Mapping[str, Any]) -> None:
    kind = parameters["rope_type"]
    needed = (_KINDS | _SIZES_ALONE).get(str(kind))
    if needed is None:
        f.cannot(f"rope_type is {repr(kind)[:60]}: this runtime computes {', '.join(_KINDS)}")
    for name in ("rope_theta", *(needed or ())):
        if checked_number(f"rope_parameters: {name}", parameters.get(name)) <= 0:
            raise ConfigError(
                f"config.json: rope_parameters: {name} is {parameters[name]}: it must be above 0"
            )
    share = checked_number("partial_rotary_factor", parameters["partial_rotary_factor"])
    if not 0 < share <= 1:
        raise ConfigError(f"config.json: partial_rotary_factor is {share}: it must be above 0 and at most 1")
    for name in _NUMBERS:
        if parameters.get(name) is not None:
            checked_number(f"rope_parameters: {name}", parameters[name])


def interleaved(rope: RopeConfig, is_so: bool) -> RopeConfig:
    return replace(rope, interleaved=is_so)


def latent_scale(rope: RopeConfig, width: int) -> float:
    """1 / sqrt(head size), and what YaRN adds to it in latent attention."""
    told = rope.parameters
    if told["rope_type"] == "default" or not told.get("mscale_all_dim"):
        return width**-0.5
    return width**-0.5 * mscale(told["factor"], told["mscale_all_dim"]) ** 2


def mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
