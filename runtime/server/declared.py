"""What a config.json declares of its weights: their quantization, its blocks, their dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.server.errors import ConfigError, Unsupported
from runtime.server.excluded import excluded_of
from runtime.server.formats.assigned import UNQUANTIZED, Quantized
from runtime.server.formats.kinds import Kind

HF = Mapping[str, Any]
MODELOPT = {"FP8": "modelopt_fp8", "NVFP4": "modelopt_fp4", "NVFP4_AWQ": "modelopt_fp4"}


def declared_quantization(hf: HF) -> str | None:
    """The method of the checkpoint's weights, under SGLang's name."""
    section = _section(hf)
    method = section.get("quant_method")
    if method == "modelopt" or (method is None and "quant_algo" in section):
        algorithm = str(section.get("quant_algo", "")).upper()
        return MODELOPT.get(algorithm, "modelopt")
    return None if method is None else str(method)


def declared_block(hf: HF) -> tuple[int, int] | None:
    told = _section(hf).get("weight_block_size")
    if told is None:
        return None
    if not isinstance(told, list) or len(told) != 2 or not all(type(one) is int and one > 0 for one in told):
        raise ConfigError(f"quantization_config: weight_block_size is {told!r:.60}: two sizes are needed")
    return told[0], told[1]


def declared_weights(hf: HF) -> Quantized:
    """Which of its matrices are quantized, and how."""
    section, method = _section(hf), declared_quantization(hf)
    if method is None:
        return UNQUANTIZED
    if method not in _READERS:
        raise Unsupported(
            f"quantization_config: {method!r:.60} is not one of the core's ({', '.join(_READERS)}): a server "
            "answers for it"
        )
    kind = _READERS[method](hf)
    if kind.name == "mxfp4":
        return Quantized(experts=kind)
    return Quantized(kind, kind, excluded_of(section))


def declared_dtype(hf: HF) -> str:
    return str(hf.get("dtype") or hf.get("torch_dtype") or "bfloat16").removeprefix("torch.")


def _fp8(hf: HF) -> Kind:
    block = declared_block(hf)
    if block is not None:
        return Kind("fp8", "block", block)
    return Kind("fp8", "tensor", is_static=_section(hf).get("activation_scheme") == "static")


def _nvfp4(hf: HF) -> Kind:
    section = _section(hf)
    groups = section.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") if isinstance(first, Mapping) else {}
    told = section.get("group_size", weights.get("group_size") if isinstance(weights, Mapping) else None)
    if told is not None and (type(told) is not int or not 0 < told < 1 << 16):
        raise ConfigError(f"quantization_config: group_size is {told!r:.60}: a size is needed")
    return Kind("nvfp4", group=told or 16)


_READERS: Mapping[str, Callable[[HF], Kind]] = {
    "fp8": _fp8,
    "modelopt_fp8": lambda hf: Kind("fp8", "tensor", is_static=True),
    "modelopt_fp4": _nvfp4,
    "mxfp4": lambda hf: Kind("mxfp4", group=32),
}


def _section(hf: HF) -> HF:
    section = hf.get("quantization_config")
    return section if isinstance(section, Mapping) else {}
