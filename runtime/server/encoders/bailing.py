"""What Ling 3 VL (srt/models/bailing_mm_v3.py) and Ming (bailing_mm.py) have beside their text, on the first
stage: Qwen3-VL's tower, and matrices that join it to text, which each rank has whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.wrapper_fields import MING_TEXT
from runtime.server.encoders.qwen import QWEN3, QWEN3_DEEP, qwen3_tower
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, linear, named, over_attention_ranks
from runtime.server.errors import Unsupported

_SECTIONS, _TURNED, _HEAD = [8, 12, 12], 64, 128
_TOWERS = ("Qwen3MoeVisionTransformer", "Qwen3_VisionTransformer", "qwen3_vl_moe")


def ling_3_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    """The norm that merges patches is all of it where a file says so."""
    text = Fields(hf, {}).section("text_config")
    _check_sections(
        hf, text, Section(hf, "text_config", {"qk_rope_head_dim": _TURNED}).size("qk_rope_head_dim")
    )
    v = Section(hf, defaults=QWEN3)
    is_bare = v.flag("disable_merger_proj")
    out = v.size("hidden_size") * v.size("spatial_merge_size") ** 2 if is_bare else v.size("out_hidden_size")
    tower = qwen3_tower(v, _none if is_bare else over_attention_ranks)
    joins = (linear("linear_proj.0", text_width, out), linear("linear_proj.2", text_width, text_width))
    for weight in chain(named("visual", tower), *joins):
        yield replace(weight, on_first_stage_alone=True)


def _none(_weights: Weights) -> Weights:
    return iter(())


def ming(hf: Mapping[str, Any], text_width: int) -> Weights:
    _check_ming(hf)
    v = Section(hf, defaults=QWEN3_DEEP)
    wide = v.size("out_hidden_size")
    tower = named("vision", qwen3_tower(v))
    depth = Section(hf, "", {"mlp_depth": 1}).size("mlp_depth")
    joins = (linear(f"linear_proj.{2 * at}", text_width, text_width if at else wide) for at in range(depth))
    for weight in chain(tower, *joins):
        yield replace(weight, on_first_stage_alone=True)


def _check_ming(hf: Mapping[str, Any]) -> None:
    """At these SGLang ends, or reads them otherwise than they are told."""
    if hf.get("audio_config") is not None:
        raise Unsupported(
            "config.json: audio_config: SGLang's class of Ming ends at one, as it hears nothing"
        )
    if hf.get("quantization_config") is not None:
        raise Unsupported(
            "config.json: quantization_config: here Ming is plain, as SGLang calls its layers apart"
        )
    v, text = Section(hf), Fields(hf, {}).section("llm_config")
    kinds = v.get("architectures") or [v.get("model_type") or _TOWERS[-1]]
    told = kinds[0] if isinstance(kinds, list) else kinds
    if told not in _TOWERS or kinds is told:
        raise Unsupported(
            f"config.json: vision_config: a tower of {repr(told)[:60]}: here it is Qwen3's alone"
        )
    t = Section(hf, "llm_config", MING_TEXT)
    head = t.size("head_dim") if t.get("head_dim") else t.size("hidden_size") // t.size("num_attention_heads")
    if t.get("head_dim") is None and head != _HEAD:
        raise Unsupported(
            f"config.json: llm_config: head_dim is missing: SGLang takes {head}, and Ling {_HEAD}"
        )
    share = checked_number("partial_rotary_factor", t.get("partial_rotary_factor"))
    _check_sections(hf, text, int(head * share))


def _check_sections(hf: Mapping[str, Any], text: Mapping[str, Any], turned: int) -> None:
    """By any other SGLang ends: they have to be as many as pairs that are turned."""
    ropes = [Fields(text, {}).section(name) for name in ("rope_scaling", "rope_parameters")]
    told = [hf.get("mrope_section"), *(one.get("mrope_section") for one in ropes)]
    sections = next((one for one in told if one is not None), _SECTIONS)
    if not isinstance(sections, list) or not all(type(one) is int for one in sections) or len(sections) != 3:
        raise Unsupported(f"config.json: mrope_section is {repr(sections)[:60]}: SGLang has three of them")
    if sum(sections) * 2 != turned:
        said = f"config.json: mrope_section is {sections}: SGLang ends, as its heads turn {turned} values"
        raise Unsupported(said)
