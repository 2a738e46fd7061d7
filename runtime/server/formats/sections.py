"""What SGLang's method ends at as it reads a quantization_config, or takes otherwise than others do.

from_config of srt/layers/quantization: fp8.py, blockwise_int8.py, w8a8_int8.py, modelopt_quant.py, awq,
quark, mxfp4.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.server.errors import Unsupported
from runtime.server.formats.fields import section_of

Section = Mapping[str, Any]
_SCHEMES = ("dynamic", "static")
_FP8_LISTS = ("ignored_layers", "modules_to_not_convert")
FP4_SINCE = {"NVFP4": (0, 5, 12), "NVFP4_AWQ": (0, 5, 17), "W4A16_NVFP4": (0, 5, 19)}
_ALGORITHMS = {"modelopt_fp8": ("FP8",), "modelopt_fp4": tuple(FP4_SINCE)}
_MODULES = ("attn", "attn_mha", "attn_mqa", "experts")  # that are no matrices
_EXPRESSION = "re:"
_WHOLE = ("model.", "lm_head")  # as quark's own names begin, of which no part counts
_WITH_MXFP4 = ("gpt_oss",)  # others give the method to what it has no kernels for


def check_section(section: Section, method: str, model_type: str) -> None:
    check = _CHECKS.get(method)
    if check is not None:
        check(section, method)
    if method == "mxfp4" and model_type not in _WITH_MXFP4:
        raise Unsupported(f"quantization_config: mxfp4 of {model_type}: it is known of gpt-oss alone")


def _activations(section: Section, method: str) -> None:
    told = section.get("activation_scheme", "dynamic")
    in_blocks = method == "mxfp8" or section.get("weight_block_size") is not None
    if told not in _SCHEMES or (in_blocks and told == "static"):
        beside = " beside blocks" if in_blocks else ""
        raise Unsupported(
            f"quantization_config: activation_scheme is {repr(told)[:60]}{beside}: SGLang ends at it"
        )
    for key in _FP8_LISTS:
        if any(not one.strip(".") for one in _names(section, key)):
            raise Unsupported(f"quantization_config: {key}: a name is empty")


def _in_int8_blocks(section: Section, method: str) -> None:
    """Which asks one list, and never for experts."""
    _activations(section, method)
    for key in _FP8_LISTS:
        if section.get(key):
            raise Unsupported(f"quantization_config: {key} of {method} is not followed here")


def _by_rows(section: Section, method: str) -> None:
    """It makes a linear's method for whatever it ignores, and ends where that is none."""
    for one in _names(section, "ignore"):
        if one.startswith(_EXPRESSION) or one.rpartition(".")[2] in _MODULES:
            raise Unsupported(f"quantization_config: ignore: {one[:60]!r} of {method} is not followed here")


def _modelopts(section: Section, method: str) -> None:
    told = section.get("quant_algo")
    if told is not None and told not in _ALGORITHMS[method]:
        raise Unsupported(f"quantization_config: quant_algo is {repr(told)[:60]}: SGLang ends at it")
    if "ignore" in section and section["ignore"] is None and method == "modelopt_fp4":
        raise Unsupported("quantization_config: ignore is null: SGLang ends at it")


def _awqs(section: Section, _: str) -> None:
    if section.get("group_size", section.get("q_group_size")) == -1:
        raise Unsupported("quantization_config: group_size is -1: SGLang has no AWQ of whole rows")
    if section.get("lm_head"):  # which has no size that Marlin asks for
        raise Unsupported("quantization_config: lm_head is quantized by AWQ: SGLang ends at it")


def _quarks(section: Section, _: str) -> None:
    told = section_of(section, "global_quant_config")
    weight, inputs = section_of(told, "weight"), section_of(told, "input_tensors")
    scheme = inputs.get("qscheme"), bool(inputs.get("is_dynamic"))
    known = ("per_channel", True) if weight.get("qscheme") == "per_channel" else ("per_tensor", scheme[1])
    if inputs.get("dtype") != "fp8_e4m3" or weight.get("is_dynamic") or scheme != known:
        raise Unsupported(
            "quantization_config: of quark's formats only fp8 a tensor beside inputs a tensor, or a channel "
            "beside rows, is known here"
        )
    for one in _names(section, "exclude"):
        if not one.startswith(_WHOLE):
            raise Unsupported(f"quantization_config: exclude: {one[:60]!r} of quark is not followed here")


def _names(section: Section, key: str) -> list[str]:
    """What else a list has, or is, its reader refuses."""
    listed = section.get(key)
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


_CHECKS: dict[str, Callable[[Section, str], None]] = {
    **dict.fromkeys(("fp8", "mxfp8"), _activations),
    "blockwise_int8": _in_int8_blocks,
    "w8a8_int8": _by_rows,
    **dict.fromkeys(_ALGORITHMS, _modelopts),
    "awq": _awqs,
    "quark": _quarks,
}
