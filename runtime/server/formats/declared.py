"""What a config.json declares of its weights: the one reader of its quantization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.server.errors import ConfigError, Unsupported
from runtime.server.formats.assigned import UNQUANTIZED, Kind, Quantized
from runtime.server.formats.excluded import excluded_of

HF = Mapping[str, Any]
MODELOPT = {"FP8": "modelopt_fp8", "NVFP4": "modelopt_fp4", "NVFP4_AWQ": "modelopt_fp4"}


def method_of(section: object) -> str | None:
    """Of a `quantization_config`, or of ModelOpt's own file: the method under SGLang's name."""
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise ConfigError(f"config.json: quantization_config is {section!r:.60}, not an object")
    method = section.get("quant_method")
    if method in (None, "modelopt"):
        nested = section.get("quantization")
        told = (nested if isinstance(nested, Mapping) else section).get("quant_algo")
        algorithm = str(told or "").upper()
        if algorithm not in MODELOPT and section:
            raise Unsupported(
                f"quantization {method or 'of no name'} {algorithm[:40]}: a server answers for it"
            )
        return MODELOPT.get(algorithm)
    if not isinstance(method, str):
        raise ConfigError(
            f"config.json: quantization_config: quant_method is {method!r:.60}: a name is needed"
        )
    if method.lower() not in _READERS:
        raise Unsupported(
            f"quantization {method!r:.60} is not one of the core's ({', '.join(_READERS)}): a server answers "
            "for it"
        )
    return method.lower()


def weights_of(hf: HF) -> Quantized:
    """Which of a checkpoint's matrices are quantized, and how."""
    method = method_of(hf.get("quantization_config"))
    if method is None:
        return UNQUANTIZED
    section = hf["quantization_config"]
    kind = _READERS[method](section)
    if method == "mxfp4":
        return Quantized(method, experts=kind)
    return Quantized(method, kind, kind, excluded_of(section))


def _fp8(section: HF) -> Kind:
    told = section.get("weight_block_size")
    if told is None:
        return Kind("fp8", "tensor", is_static=section.get("activation_scheme") == "static")
    if not isinstance(told, list) or len(told) != 2 or not all(type(one) is int and one > 0 for one in told):
        raise ConfigError(f"quantization_config: weight_block_size is {told!r:.60}: two sizes are needed")
    return Kind("fp8", "block", (told[0], told[1]))


def _nvfp4(section: HF) -> Kind:
    groups = section.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") if isinstance(first, Mapping) else {}
    told = section.get("group_size", weights.get("group_size") if isinstance(weights, Mapping) else None)
    if told is not None and (type(told) is not int or not 0 < told < 1 << 16):
        raise ConfigError(f"quantization_config: group_size is {told!r:.60}: a size is needed")
    return Kind("nvfp4", group=told or 16)


_READERS: Mapping[str, Callable[[HF], Kind]] = {
    "fp8": _fp8,
    "modelopt_fp8": lambda section: Kind("fp8", "tensor", is_static=True),
    "modelopt_fp4": _nvfp4,
    "mxfp4": lambda section: Kind("mxfp4", group=32),
}
