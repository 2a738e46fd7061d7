"""A multimodal model's modules by the names that they have in a model of text alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOPS = ("model.", "lm_head", "output.", "backbone.")  # of a model of text alone
_INSIDE = ("model.model.", "model.lm_head.")
_LISTS = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules")


def of_text(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """A quantization_config whose lists have them."""
    listed = {name: section[name] for name in _LISTS if isinstance(section.get(name), list)}
    return {**section, **{name: [alone(one) for one in names] for name, names in listed.items()}}


def alone(name: Any) -> Any:
    """`model.language_model.layers.0`, `language_model.model.layers.0`, `thinker.model.layers.0` and
    `model.model.layers.0` are `model.layers.0` there."""
    if not isinstance(name, str):
        return name
    name = name.removeprefix("thinker.")
    if name.startswith(_INSIDE):
        return name.removeprefix("model.")
    if "language_model." not in name:
        return name
    bare = name.replace("language_model.", "", 1)
    return bare if bare.startswith(_TOPS) else f"model.{bare}"
