"""compressed-tensors: groups of modules, each with how its weights and its inputs are quantized.

layers/quantization/compressed_tensors/compressed_tensors.py: what each group becomes, and which of them a
module is in: by its name, else by its class, else by the names of what is run as one in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runtime.server.errors import ConfigError, Unsupported
from runtime.server.excluded import excluded_of
from runtime.server.formats.assigned import Quantized
from runtime.server.formats.fields import block_of, flag, section_of, text, whole
from runtime.server.formats.kinds import Kind

Section = Mapping[str, Any]
_EXPRESSION = "re:"
_LINEAR, _EXPERTS = "Linear", "FusedMoE"
_PACKED = "pack-quantized"


def compressed(section: Section) -> Quantized:
    targets: dict[str, Kind] = {}
    groups = section_of(section, "config_groups")
    for name in groups:
        group = section_of(groups, name)
        kind = _kind(group, text(group, "format") or text(section, "format"))
        targets.update(dict.fromkeys(_names(group), kind))
    if not targets:
        return Quantized()
    told = {name: kind for name, kind in targets.items() if name not in (_LINEAR, _EXPERTS)}
    expressions = tuple(_as_expression(name) for name in told)
    return Quantized(
        _of_linears(section, targets),
        targets.get(_EXPERTS, targets.get(_LINEAR)),
        excluded=excluded_of(section, "compressed-tensors"),
        expressions=expressions,
        of_expressions=tuple(told.values()),
        covers_experts=True,
        strict=True,
    )


def _of_linears(section: Section, targets: Mapping[str, Kind]) -> Kind | None:
    own = section_of(section, "linear_fp8_config")
    if not own:
        return targets.get(_LINEAR)
    block = block_of(own, "weight_block_size")
    return Kind("fp8", "tensor") if block is None else Kind("fp8", "block", block)


def _names(group: Section) -> list[str]:
    found = group.get("targets")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ConfigError(f"quantization_config: targets is {repr(found)[:60]}: a list of modules is needed")
    return list(found)


def _as_expression(target: str) -> str:
    """A name stands for itself alone."""
    if target.startswith(_EXPRESSION):
        return target.removeprefix(_EXPRESSION)
    return re.escape(target) + "$"


def _kind(group: Section, form: str) -> Kind:
    weights, inputs = section_of(group, "weights"), section_of(group, "input_activations")
    bits, strategy = whole(weights, "num_bits", 2, most=16), text(weights, "strategy")
    made = _floats(weights, inputs, bits, strategy) if text(weights, "type") == "float" else None
    if made is None and text(weights, "type") == "int":
        made = _integers(weights, inputs, bits, strategy, form)
    if made is None:
        raise Unsupported(
            f"quantization_config: {bits} bits a {strategy or 'matrix'}, {form or 'no format'}: unknown here"
        )
    return made


def _floats(weights: Section, inputs: Section, bits: int, strategy: str) -> Kind | None:
    if bits == 4:
        group = whole(weights, "group_size", 1, 16)
        if strategy == "tensor_group" and group == 16:
            return Kind("nvfp4_packed", has_inputs=bool(inputs))
        return Kind("mxfp4") if strategy == "group" and group == 32 else None
    static = bool(inputs) and not inputs.get("dynamic")
    if bits != 8:
        return None
    if strategy == "block":
        block = block_of(weights, "block_structure") or (128, 128)
        return Kind("fp8", "block", block, scale="weight_scale")
    ends = strategy == "tensor" and text(inputs, "strategy") == "token"
    return _by(strategy, "fp8", static, linears_only=ends)


def _integers(weights: Section, inputs: Section, bits: int, strategy: str, form: str) -> Kind | None:
    if form == _PACKED and not inputs and bits in (4, 8) and strategy in ("group", "channel"):
        group = whole(weights, "group_size", -1, -1) if strategy == "group" else -1
        order = text(weights, "actorder")
        symmetric = weights.get("symmetric") is None or flag(weights, "symmetric")
        by_activation, unsplit = order == "group", order not in ("", "static")
        return Kind(
            "packed",
            bits=bits,
            group=group,
            symmetric=symmetric,
            by_activation=by_activation,
            whole_scales=unsplit,
        )
    if bits != 8 or not inputs:
        return None
    return _by(strategy, "int8", not inputs.get("dynamic"), one_input=True, linears_only=True)


def _by(strategy: str, name: Any, is_static: bool, **told: Any) -> Kind | None:
    per: Any = {"channel": "row", "tensor": "tensor"}.get(strategy)
    return None if per is None else Kind(name, per, is_static=is_static, **told)
