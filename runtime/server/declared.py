"""What a config.json declares of its weights: their quantization, its blocks, their dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.formats.assigned import Quantized
from runtime.server.formats.read import quantized_of

HF = Mapping[str, Any]


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
    return {"FP8": "modelopt_fp8", "MIXED_PRECISION": "modelopt_mixed"}.get(algorithm, "modelopt")


def declared_block(hf: HF) -> tuple[int, int] | None:
    section = hf.get("quantization_config")
    block = section.get("weight_block_size") if isinstance(section, Mapping) else None
    return tuple(block) if block else None


def declared_weights(hf: HF) -> Quantized:
    """Which of its matrices are quantized, and how."""
    section = hf.get("quantization_config")
    return quantized_of(section if isinstance(section, Mapping) else {}, declared_quantization(hf))


def declared_dtype(hf: HF) -> str:
    return str(hf.get("dtype") or hf.get("torch_dtype") or "bfloat16").removeprefix("torch.")
