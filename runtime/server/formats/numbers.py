"""compressed-tensors' QuantizationArgs: how the numbers of a weight, or of an input, are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.formats.fields import block_of, flag, text, whole

Section = Mapping[str, Any]
_HARMLESS = ("observer", "observer_kwargs", "scale_dtype", "zp_dtype")
_READ = ("num_bits", "type", "strategy", "group_size", "block_structure", "symmetric", "dynamic", "actorder")
_IN_GROUPS = ("group", "tensor_group")


@dataclass(frozen=True, slots=True)
class Numbers:
    """`group` -1: none. `is_dynamic`: scales are found while a server runs."""

    bits: int
    is_float: bool
    per: str
    group: int
    block: tuple[int, int] | None
    is_symmetric: bool
    is_dynamic: bool
    order: str

    def __str__(self) -> str:
        kind = "float" if self.is_float else "int"
        apart = "" if self.is_symmetric else ", not symmetric"
        order = f", actorder {self.order}" if self.order else ""
        return f"{kind}{self.bits} a {self.per}{apart}{order}{', dynamic' if self.is_dynamic else ''}"


def numbers(of: Section) -> Numbers:
    unknown = next((name for name in of if name not in (*_READ, *_HARMLESS)), None)
    if unknown is not None:
        raise ConfigError(f"quantization_config: {str(unknown)[:60]} is no member of compressed-tensors'")
    found = Numbers(
        whole(of, "num_bits", 2, most=16),
        _is_float(of),
        text(of, "strategy") or "matrix",
        _group(of),
        block_of(of, "block_structure"),
        of.get("symmetric") is None or flag(of, "symmetric"),
        of.get("dynamic") == "local" or flag(of, "dynamic"),
        text(of, "actorder"),
    )
    _check(found, of.get("dynamic") == "local")
    return found


def _is_float(of: Section) -> bool:
    found = text(of, "type")
    if found not in ("float", "int"):
        raise ConfigError(f"quantization_config: type is {found[:60]!r}: float or int is needed")
    return found == "float"


def _group(of: Section) -> int:
    found = of.get("group_size")
    return -1 if found in (None, 0) and not isinstance(found, bool) else whole(of, "group_size", -1)


def _check(found: Numbers, is_local: bool) -> None:
    """What it refuses itself."""
    in_groups = found.per in _IN_GROUPS
    wrong = (
        (in_groups and found.group < 1, "needs a group_size"),
        (not in_groups and found.group > 0, f"has a group_size, {found.group}"),
        ((found.per == "block") != (found.block is not None), "and block_structure go together"),
        (found.per == "token" and not found.is_dynamic, "has to be dynamic"),
        (found.is_dynamic and found.per not in (*_IN_GROUPS, "token", "tensor"), "cannot be dynamic"),
        (is_local and found.per != "tensor_group", "cannot be dynamic by itself alone"),
    )
    for is_wrong, said in wrong:
        if is_wrong:
            raise ConfigError(f"quantization_config: strategy {found.per!r} {said}: SGLang ends at it")
