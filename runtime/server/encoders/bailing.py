"""What Ling 3 VL (srt/models/bailing_mm_v3.py) has beside its text, on the first stage: Qwen3-VL's tower, and
two matrices that join it to text, which each rank has whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.encoders.qwen import QWEN3, qwen3_tower
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, linear, named, over_attention_ranks
from runtime.server.errors import Unsupported

_SECTIONS, _TURNED = [8, 12, 12], 64


def ling_3_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    """The norm that merges patches is all of it where a file says so."""
    _check_sections(hf)
    v = Section(hf, defaults=QWEN3)
    is_bare = v.flag("disable_merger_proj")
    out = v.size("hidden_size") * v.size("spatial_merge_size") ** 2 if is_bare else v.size("out_hidden_size")
    tower = qwen3_tower(v, _none if is_bare else over_attention_ranks)
    joins = (linear("linear_proj.0", text_width, out), linear("linear_proj.2", text_width, text_width))
    for weight in chain(named("visual", tower), *joins):
        yield replace(weight, on_first_stage_alone=True)


def _none(_weights: Weights) -> Weights:
    return iter(())


def _check_sections(hf: Mapping[str, Any]) -> None:
    """By any other SGLang ends: they have to be as many as pairs that are turned."""
    text = hf.get("text_config") or {}
    ropes = [text.get(name) or {} for name in ("rope_scaling", "rope_parameters")]
    told = [hf.get("mrope_section"), *(one.get("mrope_section") for one in ropes)]
    sections = next((one for one in told if one is not None), _SECTIONS)
    turned = text.get("qk_rope_head_dim", _TURNED)
    if not isinstance(sections, list) or not all(type(one) is int for one in sections) or len(sections) != 3:
        raise Unsupported(f"config.json: mrope_section is {repr(sections)[:60]}: SGLang has three of them")
    if sum(sections) * 2 != turned:
        said = f"config.json: mrope_section is {sections}: SGLang ends, as its latents turn {turned} values"
        raise Unsupported(said)
