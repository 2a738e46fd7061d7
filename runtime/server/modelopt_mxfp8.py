"""ModelOpt's MXFP8, of which SGLang since 0.5.18 makes another section: _parse_modelopt_quant_config of
srt/configs/model_config.py. Its list then is one of mxfp8, which knows no stars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.excluded import Excluded, excluded_of, expert_parts, stored_otherwise
from runtime.server.linears import each_listed, experts_listed

Section = Mapping[str, Any]
ALGORITHM = "MXFP8"  # in so many letters
_KEY = "quantization_config"
_GROUP = 32


def is_modelopts(section: Section) -> bool:
    return section.get("quant_method") in (None, "modelopt") and section.get("quant_algo") == ALGORITHM


def served(section: Section) -> Section:
    """What SGLang reads in place of a checkpoint's section, if that is one of these."""
    if not is_modelopts(section):
        return section
    made = {**section, "quant_method": "mxfp8", "activation_scheme": "dynamic", "scale_fmt": "ue8m0"}
    listed = section.get("exclude_modules", section.get("ignore"))
    if listed is not None:
        made["modules_to_not_convert"] = listed
    return {**made, "kv_cache_quant_algo": _of_keys(section)}


def _of_keys(section: Section) -> Any:
    told, scheme = section.get("kv_cache_quant_algo"), section.get("kv_cache_scheme")
    is_fp8 = isinstance(scheme, Mapping) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8)
    return "FP8" if told is None and is_fp8 else told


def with_served(hf: Section) -> Section:
    section = hf.get(_KEY)
    if not isinstance(section, Mapping) or not is_modelopts(section):
        return hf
    group = section.get("group_size", _GROUP)
    if group != _GROUP:
        raise Unsupported(f"{_KEY}: group_size is {repr(group)[:60]}: SGLang's MXFP8 has groups of {_GROUP}")
    return {**hf, _KEY: served(section)}


def meant_otherwise(model: ModelConfig, section: Any) -> Iterator[str]:
    """What ModelOpt keeps plain by a star, or quantizes of a head, and SGLang's class does not."""
    if not isinstance(section, Mapping) or section.get("quant_algo") != ALGORITHM:
        return
    listed = section.get("modules_to_not_convert") or []
    meant = replace(excluded_of({"ignore": listed}, "modelopt_fp8"), tails=())
    if not model.tie_word_embeddings and not meant.one("lm_head"):
        yield stored_otherwise("lm_head", is_plain=False)
    if meant.patterns:
        yield from _by_stars(model, meant)


def _by_stars(model: ModelConfig, meant: Excluded) -> Iterator[str]:
    weights = model.quantized
    try:
        for _, _, parts in each_listed(model):
            if {meant.one(part) for part in parts} != {weights.of_linear(parts) is None}:
                yield _said(parts[0])
        for name in experts_listed(model):
            if any(map(meant.one, (name, *expert_parts(name)))) != (weights.of_experts(name) is None):
                yield _said(name)
    except ConfigError as error:
        yield error.message.removeprefix(f"{_KEY}: ")


def _said(name: str) -> str:
    return f"{stored_otherwise(name, is_plain=True)}, which knows no stars in lists of MXFP8"
