"""What SGLang makes of one group of compressed-tensors: by its weights, its inputs and its format.

layers/quantization/compressed_tensors/compressed_tensors.py: get_linear_scheme and get_moe_scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.errors import Unsupported
from runtime.server.formats.fields import section_of
from runtime.server.formats.kinds import Kind
from runtime.server.formats.numbers import Numbers, numbers

IN_MXFP4 = Kind("mxfp4")
_PACKED = "pack-quantized"
# Of which alone SGLang takes it that inputs are quantized, in every release.
_OF_INPUTS = ("naive-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized")


def scheme(group: Mapping[str, Any], form: str, of_file: str) -> Kind:
    """`form`: the group's own, or the file's."""
    weights = numbers(section_of(group, "weights"))
    told = section_of(group, "input_activations")
    inputs = numbers(told) if told else None
    made = None
    if not weights.is_dynamic and (not weights.order or weights.per == "group"):
        read = _floats if weights.is_float else _integers
        made = read(weights, inputs, form, of_file)
    if made is None:
        beside = f" beside inputs in {inputs}" if inputs else ""
        raise Unsupported(
            f"quantization_config: weights in {weights}{beside}, {form[:60] or 'no format'}: unknown here"
        )
    return made


def _floats(weights: Numbers, inputs: Numbers | None, form: str, _: str) -> Kind | None:
    if not weights.is_symmetric:
        return None
    if (weights.bits, weights.per, weights.group) == (4, "group", 32):
        return IN_MXFP4
    if form not in _OF_INPUTS:
        return None
    if (weights.bits, weights.per, weights.group) == (4, "tensor_group", 16):
        alike = inputs is None or _is_nvfp4(inputs)
        return Kind("nvfp4_packed", has_inputs=inputs is not None) if alike else None
    if weights.bits != 8 or (inputs is not None and not _goes_with_fp8(inputs)):
        return None
    return _fp8(weights, inputs)


def _is_nvfp4(inputs: Numbers) -> bool:
    alike = inputs.is_float and inputs.is_symmetric
    return alike and (inputs.bits, inputs.per, inputs.group) == (4, "tensor_group", 16)


def _goes_with_fp8(inputs: Numbers) -> bool:
    found = inputs.is_float and inputs.bits == 8
    return found and (inputs.is_dynamic or (inputs.per == "tensor" and inputs.is_symmetric))


def _fp8(weights: Numbers, inputs: Numbers | None) -> Kind | None:
    """Experts are told apart by their inputs, too."""
    static = inputs is not None and not inputs.is_dynamic
    if weights.block is not None:
        ends = inputs is None or static
        return None if ends else Kind("fp8", "block", weights.block, scale="weight_scale")
    if weights.per == "tensor":
        of_experts = inputs is not None and inputs.per == "tensor"
        return Kind("fp8", "tensor", is_static=static, linears_only=not of_experts)
    if weights.per != "channel":
        return None
    of_experts = inputs is not None and inputs.per == "token"
    return Kind("fp8", "row", is_static=static, linears_only=not of_experts)


def _integers(weights: Numbers, inputs: Numbers | None, form: str, of_file: str) -> Kind | None:
    if inputs is None:
        fits = form == _PACKED and weights.bits in (4, 8) and weights.per in ("group", "channel")
        return _packed(weights, of_file) if fits else None
    if form not in _OF_INPUTS or not weights.is_symmetric or inputs.is_float or not inputs.is_symmetric:
        return None
    told = (weights.bits, inputs.bits, inputs.per)
    if weights.per not in ("channel", "tensor") or told != (8, 8, "token" if inputs.is_dynamic else "tensor"):
        return None
    per: Any = "row" if weights.per == "channel" else "tensor"
    return Kind("int8", per, is_static=not inputs.is_dynamic, one_input=True, linears_only=True)


def _packed(weights: Numbers, of_file: str) -> Kind:
    """Experts ask for the file's own format."""
    return Kind(
        "packed",
        bits=weights.bits,
        group=weights.group,
        symmetric=weights.is_symmetric,
        by_activation=weights.order == "group",
        whole_scales=weights.order not in ("", "static"),
        linears_only=of_file != _PACKED,
    )
