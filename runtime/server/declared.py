"""What a config.json declares of its weights: their quantization, its blocks, their dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.formats.assigned import Quantized
from runtime.server.formats.fields import block_of, whole
from runtime.server.formats.kinds import Kind
from runtime.server.formats.read import quantized_of
from runtime.server.formats.sections import check_section
from runtime.server.packed import unpacked

HF = Mapping[str, Any]
MIXED = "modelopt_mixed"
MODELOPTS = ("modelopt", "modelopt_fp8", "modelopt_fp4", MIXED)
HEADS_SINCE = (0, 5, 15)  # in these, and embeddings, as no file has them here
_OF_KEYS = ("kv_cache_quant_algo", "kv_cache_scheme")


def declared_quantization(hf: HF) -> str | None:
    """The method of the checkpoint's weights, under SGLang's name."""
    section = hf.get("quantization_config")
    if not isinstance(section, Mapping):
        return None
    method = section.get("quant_method")
    if method == "modelopt" or (method is None and "quant_algo" in section):
        return _modelopt(str(section.get("quant_algo", "")).upper())
    return None if method is None else str(method)


def _modelopt(algorithm: str) -> str:
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MIXED_PRECISION": MIXED}.get(algorithm, "modelopt")


def is_whole(section: HF) -> bool:
    """Of a mixed one: else SGLang reads hf_quant_config.json, for how keys are stored. srt/model_loader."""
    return "quantized_layers" in section and any(name in section for name in _OF_KEYS)


def mixed_lists(section: HF) -> tuple[Any, list[Any]]:
    """What of it is quantized, and what is not."""
    plain = section.get("ignore", section.get("exclude_modules")) or []
    return section.get("quantized_layers"), sorted(map(str, plain)) if isinstance(plain, list) else []


def declared_block(hf: HF) -> tuple[int, int] | None:
    section = hf.get("quantization_config")
    return block_of(section, "weight_block_size") if isinstance(section, Mapping) else None


def declared_weights(hf: HF, architecture: str) -> Quantized:
    """Which of its matrices are quantized, and how; `architecture` serves the whole that these are of."""
    section = hf.get("quantization_config")
    section = section if isinstance(section, Mapping) else {}
    method = declared_quantization(hf)
    if method is not None:
        check_section(section, method.lower(), str(hf.get("model_type")))
    found = quantized_of(section, method)
    if architecture and section:
        found = replace(found, excluded=replace(found.excluded, unpacks=unpacked(architecture, method)))
    experts = _beside_fp8(hf, section)
    return _of_minimax(hf, section, found if experts is None else replace(found, experts=experts))


def _beside_fp8(hf: HF, section: HF) -> Kind | None:
    """Experts of DeepSeek-V4, where they are not in fp8, too: srt/configs/model_config.py. SGLang asks the
    weights' headers where the file does not say; what others read then stands in it."""
    if hf.get("model_type") != "deepseek_v4" or section.get("quant_method") != "fp8":
        return None
    if section.get("quant_algo") == "MIXED_PRECISION" and section.get("moe_quant_algo") == "NVFP4":
        return Kind("nvfp4", group=whole(section, "group_size", 1, 16))
    told = section.get("routed_experts_quant_method")
    stored = section.get("expert_dtype") or hf.get("expert_dtype")
    is_mxfp4 = told == "mxfp4" if told else stored != "fp8"
    return Kind("mxfp4_beside_fp8", group=32) if is_mxfp4 else None


def _of_minimax(hf: HF, section: HF, found: Quantized) -> Quantized:
    """MiniMax-M3.1, whose mxfp8 becomes blocks where no kernels multiply by it, before Blackwell: srt/layers'
    quantization/minimax_m3_nvfp4.py"""
    is_one = hf.get("model_type") == "minimax_m3_vl_text" and section.get("quant_method") == "mxfp8"
    if not (is_one and packs_experts(section)):
        return found
    return replace(found, linear=Kind("mxfp8", "block"), experts=Kind("nvfp4_beside_mxfp8"))


def packs_experts(section: HF) -> bool:
    """In nvfp4, whatever else is in: _resolve_quant_method of srt/arg_groups/model_overrides/minimax_m3.py"""
    packed = section.get("moe_quant_format") == "nvfp4-pack-quantized"
    return packed and str(section.get("moe_quant_algo", "")).upper() == "NVFP4"


def declared_dtype(hf: HF) -> str:
    return str(hf.get("dtype") or hf.get("torch_dtype") or "bfloat16").removeprefix("torch.")
