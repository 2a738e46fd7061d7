"""Writes frozen dataclasses as plain JSON, and reads them back with a check of each member."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
DEEPEST = 64  # levels of data of no fixed form
_MOST = 1 << 60
_hints = cache(get_type_hints)


class WrongMember(TypeError):
    """A value that the record's type does not allow; the message names the member."""


def expect(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise WrongMember(f"{where} is not {what}")


def read(kind: type[T], data: Any, where: str) -> T:
    """Read data as `kind`, and refuse members that it does not have. Errors call the data `where`."""
    return cast(T, _read(kind, data, where, True))


def from_plain(kind: type[T], data: Any, where: str) -> T:
    """Read data as `kind`, and ignore members that it does not have: another sgl-tune wrote them."""
    return cast(T, _read(kind, data, where, False))


def to_plain(record: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", _plain(asdict(record)))


def given_members(record: Any) -> dict[str, Any]:
    """Return the record as plain JSON, without members that have their default values."""
    found = {}
    for one in fields(record):
        value = getattr(record, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value != default:
            found[one.name] = given_members(value) if is_dataclass(value) else _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _read(kind: Any, data: Any, where: str, strict: bool) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        _check_depth(data, where)
        return data
    if origin in (Union, types.UnionType):
        kinds = [one for one in inner if one is not type(None)]
        return None if data is None else _read(_the_one_of(kinds, data), data, where, strict)
    if origin is Literal:
        known = any(type(data) is type(one) and data == one for one in inner)
        expect(known, " or ".join(map(repr, inner)), where)
        return data
    if origin is tuple:
        return _tuple(inner, data, where, strict)
    if is_dataclass(kind):
        return _dataclass(kind, data, where, strict)
    if origin is not None:
        expect(isinstance(data, Mapping), "an object", where)
        return {str(name): _read(inner[1], one, f"{where}.{name}", strict) for name, one in data.items()}
    if kind is Path:
        expect(isinstance(data, str), "a path", where)
        return Path(data)
    if type(data) in (int, float):
        expect(abs(data) <= _MOST, "a number of a usual size", where)  # nor is it NaN
    expect(type(data) is kind or (kind is float and type(data) is int), kind.__name__, where)
    return kind(data)


def _check_depth(data: Any, where: str) -> None:
    level = [data]
    for _ in range(DEEPEST):
        nested = [one for one in level if isinstance(one, (dict, list, tuple))]
        inner = [one.values() if isinstance(one, dict) else one for one in nested]
        level = [one for several in inner for one in several]
    expect(not level, f"at most {DEEPEST} levels deep", where)


def _the_one_of(kinds: list[Any], data: Any) -> Any:
    """Return the record class that has all members of the data and requires no others."""
    told = set(data) if isinstance(data, Mapping) else set()
    members = {one: {field.name for field in fields(one)} for one in kinds if is_dataclass(one)}
    alike: list[Any] = [one for one, names in members.items() if told <= names]
    whole = (kind for kind in alike if _needed(kind) <= told)
    return kinds[0] if len(kinds) == 1 else next(whole, next(iter(alike), kinds[0]))


def _tuple(inner: tuple[Any, ...], data: Any, where: str, strict: bool) -> tuple[Any, ...]:
    expect(isinstance(data, (list, tuple)), "a list", where)
    kinds = inner[:1] * len(data) if inner[-1] is ... else inner
    expect(len(data) == len(kinds), f"a list of {len(kinds)}", where)
    pairs = enumerate(zip(kinds, data, strict=True))
    return tuple(_read(kind, one, f"{where}[{n}]", strict) for n, (kind, one) in pairs)


def _dataclass(kind: Any, data: Any, where: str, strict: bool) -> Any:
    expect(isinstance(data, Mapping), "an object", where)
    hints, needed = _hints(kind), _needed(kind)
    unknown = sorted(data.keys() - hints.keys()) if strict else ()
    expect(not unknown, f"without {', '.join(map(repr, unknown))[:200]}", where)
    missing = sorted(needed - data.keys())
    if missing:
        raise WrongMember(f"{where}.{missing[0]} is missing")
    given = (one.name for one in fields(kind) if one.name in data)
    return kind(**{name: _read(hints[name], data[name], f"{where}.{name}", strict) for name in given})


@cache
def _needed(kind: Any) -> frozenset[str]:
    needed = (one for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    return frozenset(one.name for one in needed)
