"""Foreign JSON as frozen dataclasses: each field has its type, none is missing, none is new."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
DEEPEST = 64  # levels of data of no fixed form


def read(kind: type[T], data: Any, where: str) -> T:
    """`data` as `kind`; a TypeError names the field that does not fit."""
    return typing.cast(T, _read(kind, data, where))


@cache
def _fields(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        wanted = [one for one in inner if one is not type(None)]
        return None if data is None else _read(wanted[0], data, where)
    if origin is tuple:
        return _tuple(inner, data, where)
    if origin is dict:
        expect(isinstance(data, dict), "an object", where)
        return {str(name): _read(inner[1], value, f"{where}.{name}") for name, value in data.items()}
    if kind is Any:
        _check_depth(data, where)
        return data
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    expect(type(data) is kind, kind.__name__, where)
    return data


def _check_depth(data: Any, where: str) -> None:
    level = [data]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level if _is_nested(one)]
        level = [one for several in inner for one in several]
    expect(not level, f"at most {DEEPEST} levels deep", where)


def _is_nested(data: Any) -> bool:
    return isinstance(data, (dict, list, tuple))


def _tuple(inner: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    expect(isinstance(data, (list, tuple)), "a list", where)
    if inner[-1] is ...:
        return tuple(_read(inner[0], one, f"{where}[{place}]") for place, one in enumerate(data))
    expect(len(data) == len(inner), f"a list of {len(inner)}", where)
    return tuple(
        _read(one, part, f"{where}[{n}]") for n, (one, part) in enumerate(zip(inner, data, strict=True))
    )


def _dataclass(kind: Any, data: Any, where: str) -> Any:
    expect(isinstance(data, dict), "an object", where)
    hints = _fields(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(data.keys() - fields.keys())
    expect(not unknown, f"without {', '.join(map(repr, unknown))[:200]}", where)
    missing = [name for name, one in fields.items() if name not in data and _is_needed(one)]
    expect(not missing, f"with {', '.join(missing)}", where)
    return kind(**{name: _read(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def expect(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise TypeError(f"{where} is not {what}")
