"""Reads rotary embeddings in both spellings that config.json has had for them."""

from collections.abc import Mapping
from typing import Any

from runtime.models.reading import Config, checked_number, shown
from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig, mscale

_KINDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
_NUMBERS = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor")
_FIRST = "original_max_position_embeddings"


def read_rope(
    c: Config,
    width: int,
    theta: float = 10000.0,
    share: float | None = None,
    kind: str = "",
    told: Mapping[str, Any] | None = None,
    is_interleaved: bool = False,
) -> RopeConfig:
    """Return the rotary embedding of heads that have `width` values. `share`: the part of a head that this
    family rotates. `kind` selects the layers' parameters. `told`: the parameters if config.json has none."""
    told = c.section("rope_scaling") or c.section("rope_parameters") or told or {}
    if kind in told:
        if not isinstance(told[kind], Mapping):
            raise ConfigError(f"config.json: rope_parameters: {kind} is no object")
        told = told[kind]
    parameters = {name: value for name, value in told.items() if name not in ("type", "rope_type")}
    parameters["rope_type"] = told.get("rope_type") or told.get("type") or "default"
    parameters.setdefault("rope_theta", theta if c.hf.get("rope_theta") is None else c.hf["rope_theta"])
    beside = c.hf.get("partial_rotary_factor")
    parameters.setdefault("partial_rotary_factor", (share or 1.0) if beside is None else beside)
    _check(c, parameters)
    part = parameters.pop("partial_rotary_factor")
    if beside not in (None, part):
        c.cannot(
            f"partial_rotary_factor is {shown(beside)} beside its rope's {part}: SGLang takes the first in "
            "some classes"
        )
    if share is None and part != 1:
        c.cannot(f"partial_rotary_factor is {part}: models of this family turn whole heads")
    longest = c.max_position_embeddings
    if parameters["rope_type"] in ("llama3", "yarn"):
        checked_number(_FIRST, parameters.setdefault(_FIRST, longest))
    turned = int(width * part)
    if turned % 2:
        c.cannot(f"partial_rotary_factor is {part}: of {width} would turn {turned}, which are no pairs")
    return RopeConfig(turned, parameters["rope_theta"], longest, is_interleaved, parameters)


def _check(c: Config, parameters: Mapping[str, Any]) -> None:
    kind = parameters["rope_type"]
    if str(kind) not in _KINDS:
        c.cannot(f"rope_type is {shown(kind)}: this runtime computes {', '.join(_KINDS)}")
    if parameters.get("mrope_section") is not None:
        c.cannot("mrope_section: this runtime knows one position of a token, and no images")
    for name in ("rope_theta", *_KINDS.get(str(kind), ())):
        if checked_number(f"rope_parameters: {name}", parameters.get(name)) <= 0:
            raise ConfigError(
                f"config.json: rope_parameters: {name} is {parameters[name]}: it must be above 0"
            )
    share = checked_number("partial_rotary_factor", parameters["partial_rotary_factor"])
    if not 0 < share <= 1:
        raise ConfigError(f"config.json: partial_rotary_factor is {share}: it must be above 0 and at most 1")
    for name in (*_NUMBERS, _FIRST):
        if parameters.get(name) is not None:
            checked_number(f"rope_parameters: {name}", parameters[name])


def latent_scale(rope: RopeConfig, width: int) -> float:
    """Return 1 / sqrt(head size), times YaRN's factor for latent attention."""
    told = rope.parameters
    if told["rope_type"] == "default" or not told.get("mscale_all_dim"):
        return width**-0.5
    return width**-0.5 * mscale(told["factor"], told["mscale_all_dim"]) ** 2
