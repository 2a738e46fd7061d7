"""Reads rotary embeddings in both spellings that config.json has had for them."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.models.reading import Config, checked_number, shown
from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig

_KINDS = ("default", "linear", "llama3", "yarn")  # whose tables are as long as the model's positions


def read_rope(
    c: Config, width: int, share: float | None = None, kind: str = "", is_interleaved: bool = False
) -> RopeConfig:
    """Return the rope of heads of `width` values. `share` is the family's rotated part, and `kind` selects
    the layers' parameters."""
    told = c.section("rope_scaling") or c.section("rope_parameters")
    if kind in told:
        told = told[kind]
        if not isinstance(told, Mapping):
            raise ConfigError(f"config.json: rope_parameters: {kind} is no object")
    stretched = told.get("rope_type") or told.get("type") or "default"
    if str(stretched) not in _KINDS:
        c.cannot(f"rope_type is {shown(stretched)}: this runtime knows {', '.join(_KINDS)}")
    if told.get("mrope_section") is not None:
        c.cannot("mrope_section: this runtime knows one position of a token, and no images")
    beside = c.hf.get("partial_rotary_factor")
    usual = (share or 1.0) if beside is None else beside
    part = checked_number("partial_rotary_factor", told.get("partial_rotary_factor", usual))
    if not 0 < part <= 1:
        raise ConfigError(f"config.json: partial_rotary_factor is {part}: it must be above 0 and at most 1")
    if beside not in (None, part):
        c.cannot(
            f"partial_rotary_factor is {shown(beside)} beside its rope's {part}: SGLang takes the first in "
            "some classes"
        )
    if share is None and part != 1:
        c.cannot(f"partial_rotary_factor is {part}: models of this family turn whole heads")
    turned = int(width * part)
    if turned % 2:
        c.cannot(f"partial_rotary_factor is {part}: of {width} would turn {turned}, which are no pairs")
    return RopeConfig(turned, c.max_position_embeddings, is_interleaved, kind)
