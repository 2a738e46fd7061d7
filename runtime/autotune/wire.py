"""What workers tell each other, as plain JSON and back: these kinds and no others, and never a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from runtime.autotune.agreement import BucketReport, Terms
from runtime.autotune.candidate import Candidate
from runtime.autotune.play_off import Settled
from runtime.autotune.search import Screened

_KINDS: tuple[Any, ...] = (Terms, BucketReport, Candidate, Screened, Settled)
_RECORDS = {kind.__name__: kind for kind in _KINDS}
_LIST, _TUPLE, _MAPPING = "list", "tuple", "mapping"


def to_wire(value: Any) -> Any:
    """A scalar is itself, all else a list that begins with its kind."""
    if value is None or isinstance(value, str):
        return value
    for scalar in (bool, int, float):
        if isinstance(value, scalar):
            return scalar(value)
    name = type(value).__name__
    if isinstance(value, _KINDS):
        return [name, *(to_wire(getattr(value, field.name)) for field in fields(_RECORDS[name]))]
    if isinstance(value, Mapping):
        return [_MAPPING, *([to_wire(key), to_wire(item)] for key, item in value.items())]
    if isinstance(value, list):
        return [_LIST, *map(to_wire, value)]
    if hasattr(value, "__iter__"):  # a tuple, or the array of a foreign library that a tactic may be
        return [_TUPLE, *map(to_wire, value)]
    raise TypeError(f"workers cannot share a {name}")


def from_wire(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    kind, *parts = data
    if kind == _MAPPING:
        return {from_wire(key): from_wire(item) for key, item in parts}
    values = (from_wire(part) if isinstance(part, list) else part for part in parts)
    if kind == _LIST:
        return list(values)
    if kind == _TUPLE:
        return tuple(values)
    return _RECORDS[kind](*values)
