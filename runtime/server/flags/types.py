"""What a flag's text becomes, a function a type. `BadValue` refuses with a reason, `ValueError` without."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError as BadValue
from collections.abc import Callable, Mapping
from typing import Any

_UNITS = {
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}  # fmt: skip
_AMOUNT = re.compile(r"(\d+)(?:\.(\d+))?(Ki|Mi|Gi|Ti|k|M|G|T)")
GRAPH_BACKEND_GONE = "tc_piecewise"


def amount(text: str) -> int:
    """`4k` is 4000 and `4Ki` is 4096; a fraction only before a decimal unit."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        try:
            return int(text)
        except ValueError:
            raise BadValue(f"{text!r} is no whole number (units: {', '.join(_UNITS)})") from None
    whole, fraction, unit = found.groups()
    if fraction is None:
        return int(whole) * _UNITS[unit]
    if unit.endswith("i"):
        raise BadValue(f"{text!r}: {unit} takes whole numbers; {text[:-1]} is decimal")
    return int(whole + fraction) * _UNITS[unit] // 10 ** len(fraction)


def text_or_none(text: str) -> str | None:
    return None if text in ("", "None") else text


def json_value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadValue(f"{text[:200]!r} is not JSON") from None


def any_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadValue("nested too deep") from None


def graph_backend(text: str) -> str:
    if text == GRAPH_BACKEND_GONE:
        raise BadValue(f"{text} was removed: breakable, full or disabled")
    return text


def graph_config(text: str, keys: Mapping[str, tuple[str, ...]], checks_backend: bool) -> dict[str, Any]:
    """`{"decode": {"max_bs": 64}}`: a phase's settings each."""
    phases = json_value(text)
    if not isinstance(phases, dict):
        raise BadValue(f"{text!r} is not a JSON object")
    for phase, settings in phases.items():
        if phase not in keys:
            raise BadValue(f"phase {phase!r} is none of {', '.join(keys)}")
        if not isinstance(settings, dict):
            raise BadValue(f"{phase!r} must hold a JSON object")
        if checks_backend and "backend" in settings:
            graph_backend(settings["backend"])
        for key in settings:
            if key not in keys[phase]:
                raise BadValue(f"{phase!r} has no {key!r}: {', '.join(keys[phase])}")
    return phases


def _no_constant(name: str) -> None:
    raise ValueError(name)


GRAPH_BACKEND, GRAPH_CONFIG = "parse_cuda_graph_backend_arg", "parse_cuda_graph_config_arg"

JSON_TYPES = ("loads", "json_list_type")

# By the names of SGLang's own functions, as they stand in the generated rows.
TYPES: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "loads": any_json,
    "json_list_type": json_value,
    "human_readable_int": amount,
    "nullable_str": text_or_none,
    GRAPH_BACKEND: graph_backend,
}
