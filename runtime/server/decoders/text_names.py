"""A multimodal model's modules by the names that they have in a model of text alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

BACKBONE = "backbone."
_TOPS = ("model.", "lm_head", "output.", BACKBONE)  # of a model of text alone
_INSIDE = ("model.model.", "model.lm_head.")
_LAYERS = "layers."
# What lists write before layers of text, in a file of more than that.
_STEMS = (
    *("model.", "model.model.", "language_model.", "language_model.model.", "model.language_model."),
    *("model.language_model.model.", "thinker.model."),
)
# Those by which SGLang's class looks for the layers of its text, in every release and format that was asked.
_WITHIN, _BESIDE = "model. language_model.model.", "language_model. model.language_model."
_CALLED: Mapping[str, str] = {
    **dict.fromkeys(("cohere2_vision", "gemma3", "kimi_vl", "llama4", "minimax_m3_vl", "mllama"), _WITHIN),
    **dict.fromkeys(("gemma3n", "gemma4", "gemma4_unified", "qwen3_omni_moe"), _BESIDE),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), _BESIDE),
    **dict.fromkeys(("intern_s2_preview", "interns2_mobius", "interns1_pro", "qwen4_exp"), _BESIDE),
    **dict.fromkeys(("glm4v_moe", "qwen3_vl", "qwen3_vl_moe"), "language_model."),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "paddleocr_vl"), ""),  # whose formats have none in common
}
# ... and those that a class maps to its own in lists, which AWQ asks no class for: srt/models/glm5_next.py
_MAPPED: Mapping[str, str] = {"glm5_next": "model. model.language_model."}
_UNMAPPED = "awq"
# Whose class reads its lists by rules of its own, or whose layers have other names.
_OTHERWISE = ("muse_spark", "NemotronH_Nano_VL_V2", "NemotronH_Nano_Omni_Reasoning_V3", "nemotron_h_omni")
_EXPRESSION = "re:"
_OF_THE_TEXT = re.compile(r"language_model|model.*layers|^model\.\*")
_MIXED = "quantized_layers"
# Of ModelOpt's mixed ones, since 0.5.20: _quantized_layer_prefix_candidates of srt/.../modelopt_quant.py
_ALSO: Mapping[str, tuple[str, ...]] = {
    "model.": ("model.language_model.",),
    "model.language_model.": ("language_model.model.", "model."),
    "language_model.model.": ("model.language_model.",),
}
_LISTS = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules")


def of_text(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """A quantization_config whose lists have them."""
    return _each(section, alone)


def of_backbone(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """A quantization_config whose lists name those of a model whose layers are a backbone's."""
    return _each(section, lambda one: re.sub(r"^model\.", BACKBONE, one) if isinstance(one, str) else one)


def called_in(wrapper: str, method: str = "") -> tuple[str, ...] | None:
    """What begins them there, or None: by whatever a list calls them. Most are named as those of a text."""
    if wrapper in _MAPPED and method != _UNMAPPED:
        return tuple(_MAPPED[wrapper].split())
    return None if wrapper in _OTHERWISE else tuple(_CALLED.get(wrapper, "model.").split())


def as_served(section: Mapping[str, Any], called: Sequence[str]) -> Mapping[str, Any]:
    """... where these begin the names of layers in SGLang's class, as it looks for no others."""
    made = _each(section, lambda one: _served(one, called))
    if not isinstance(section.get(_MIXED), Mapping):
        return made
    also = {other for stem in called for other in _ALSO.get(stem, ())}
    return {**made, _MIXED: {_served(name, (*called, *also)): kind for name, kind in section[_MIXED].items()}}


def unclear_expressions(section: Mapping[str, Any]) -> Iterator[str]:
    """Matched from the first letter of what SGLang's class calls a module: what they mean of layers may
    depend on what it calls the text."""
    dynamic = section.get("dynamic")
    told = [str(one).removeprefix("-:").removeprefix("+:") for one in dynamic or ()]
    for listed in _listed(section).values():
        told += [one.removeprefix(_EXPRESSION) for one in listed if str(one).startswith(_EXPRESSION)]
    yield from (one for one in told if _OF_THE_TEXT.search(one))


def _listed(section: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: section[name] for name in _LISTS if isinstance(section.get(name), list)}


def _each(section: Mapping[str, Any], named: Callable[[Any], Any]) -> Mapping[str, Any]:
    lists: dict[str, Any] = {name: [named(one) for one in names] for name, names in _listed(section).items()}
    if isinstance(section.get(_MIXED), Mapping):
        lists[_MIXED] = {named(name): kind for name, kind in section[_MIXED].items()}
    return {**section, **lists}


def _served(name: Any, called: Sequence[str]) -> Any:
    """What it does not look for is no name here either."""
    if not isinstance(name, str) or _LAYERS not in name or name.startswith(_EXPRESSION):
        return alone(name)
    stem, _, rest = name.partition(_LAYERS)
    if stem not in _STEMS:
        return name
    return f"model.{_LAYERS}{rest}" if stem in called else f"elsewhere.{_LAYERS}{rest}"


def alone(name: Any) -> Any:
    """`model.language_model.layers.0`, `language_model.model.layers.0`, `thinker.model.layers.0` and
    `model.model.layers.0` are `model.layers.0` there."""
    if not isinstance(name, str) or name.startswith(_EXPRESSION):
        return name
    name = name.removeprefix("thinker.")
    if name.startswith(_INSIDE):
        return name.removeprefix("model.")
    if "language_model." not in name:
        return name
    bare = name.replace("language_model.", "", 1)
    return bare if bare.startswith(_TOPS) else f"model.{bare}"
