"""compressed-tensors: groups of modules, each with how its weights and its inputs are quantized.

layers/quantization/compressed_tensors/compressed_tensors.py: which of the groups a module is in: by its name,
else by its class, else by the names of what is run as one in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runtime.server.errors import ConfigError, Unsupported
from runtime.server.excluded import excluded_of
from runtime.server.formats.assigned import Quantized
from runtime.server.formats.fields import block_of, section_of, text
from runtime.server.formats.kinds import Kind
from runtime.server.formats.schemes import IN_MXFP4, scheme
from runtime.server.patterns import Patterns

Section = Mapping[str, Any]
_EXPRESSION = "re:"
_LINEAR, _EXPERTS = "Linear", "FusedMoE"
# Whose names SGLang looks for targets in, after those of modules: srt/layers.
_CLASSES = (
    *("ReplicatedLinear", "ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear"),
    *("RowParallelLinear", "MergedColumnParallelRepeatedLinear", "ColumnParallelBatchedLinear"),
    *(_EXPERTS, "DeepEPMoE"),
)
_MXFP4 = "mxfp4"


def compressed(section: Section) -> Quantized:
    _check(section)
    targets: dict[str, Kind] = {}
    groups, form = section_of(section, "config_groups"), text(section, "format")
    own_formats = False
    for name in groups:
        group = section_of(groups, name)
        own = text(group, "format") or form
        own_formats |= own != form
        targets.update(dict.fromkeys(_names(group), scheme(group, own, form)))
    every = _every_linear(section)
    _check_mxfp4(targets, form)
    if not targets:
        return Quantized(every, every_linear=every)
    told = {name: kind for name, kind in targets.items() if name not in (_LINEAR, _EXPERTS)}
    return Quantized(
        every or targets.get(_LINEAR),
        IN_MXFP4 if _MXFP4 in form else targets.get(_EXPERTS, targets.get(_LINEAR)),
        excluded=excluded_of(section, "compressed-tensors"),
        expressions=tuple(_as_expression(name) for name in told),
        of_expressions=tuple(told.values()),
        covers_experts=True,
        strict=True,
        every_linear=every,
        own_formats=own_formats,
    )


def _check(section: Section) -> None:
    if section.get("sparsity_config"):
        raise Unsupported("quantization_config: sparsity_config is not followed here")
    if section.get("ignore", ()) is None:
        raise ConfigError("quantization_config: ignore is null: SGLang ends at it")


def _check_mxfp4(targets: Mapping[str, Kind], form: str) -> None:
    """Its experts are known by the file's format, or by the class that a group names, and never by a name."""
    in_mxfp4 = [name for name, kind in targets.items() if kind == IN_MXFP4]
    if _MXFP4 in form and (not targets or len(in_mxfp4) < len(targets)):
        raise Unsupported(f"quantization_config: {form[:60]!r} of groups in others is not known here")
    named = [name for name in in_mxfp4 if name not in (_LINEAR, _EXPERTS)]
    of_experts = targets.get(_EXPERTS, targets.get(_LINEAR))
    if _MXFP4 not in form and (named or (in_mxfp4 and of_experts != IN_MXFP4)):
        raise ConfigError("quantization_config: SGLang has nothing in mxfp4 but all experts of a file")


def _every_linear(section: Section) -> Kind | None:
    """What SGLang then makes of each, also of those that are ignored."""
    own = section_of(section, "linear_fp8_config")
    if not own:
        return None
    if text(own, "quant_method") != "fp8":
        raise Unsupported("quantization_config: linear_fp8_config of no quant_method fp8 is not known here")
    block, inputs = block_of(own, "weight_block_size"), text(own, "activation_scheme") or "dynamic"
    if inputs not in ("dynamic", "static") or (block is not None and inputs == "static"):
        raise ConfigError(f"quantization_config: activation_scheme is {inputs[:60]!r}: SGLang ends at it")
    if block is not None:
        return Kind("fp8", "block", block)
    return Kind("fp8", "tensor", is_static=inputs == "static")


def _names(group: Section) -> list[str]:
    found = group.get("targets")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ConfigError(f"quantization_config: targets is {repr(found)[:60]}: a list of modules is needed")
    for one in found:
        if one not in (_LINEAR, _EXPERTS) and _names_classes(one):
            raise Unsupported(
                f"quantization_config: targets: {one[:60]!r} names classes of SGLang: only Linear and "
                "FusedMoE are followed here"
            )
    return list(found)


def _names_classes(target: str) -> bool:
    """A part of a class's name, in any letters. What every name matches is none."""
    if not target.startswith(_EXPRESSION):
        return any(target.lower() in one.lower() for one in _CLASSES)
    pattern = Patterns((target.removeprefix(_EXPRESSION),))
    return pattern.first("") is None and any(pattern.first(one) is not None for one in _CLASSES)


def _as_expression(target: str) -> str:
    """A name stands for itself alone."""
    if target.startswith(_EXPRESSION):
        return target.removeprefix(_EXPRESSION)
    return re.escape(target) + "$"
