"""Frozen dataclasses as plain JSON and back: what comes back is checked, member by member."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sgl_tune.units import shown

Record = TypeVar("Record")

_MOST = 1 << 60


class WrongMember(ValueError):
    """A value that the record's type does not allow; the message names the member."""


def to_plain(record: Any) -> dict[str, Any]:
    return _plain(asdict(record))


def given_members(record: Any) -> dict[str, Any]:
    """As plain JSON, without what is as it is by default."""
    found = {}
    for one in fields(record):
        value = getattr(record, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value != default:
            found[one.name] = given_members(value) if is_dataclass(value) else _plain(value)
    return found


def from_plain(kind: type[Record], data: Any, where: str) -> Record:
    """`where` is what errors call the whole; a record's own checks may raise as well."""
    record: Record = _decode_record(kind, data, where)
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _decode(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return None if value is None else _decode(_the_one_of(inner, value), value, where)
    if origin is Literal:
        is_one = any(type(value) is type(one) and value == one for one in arguments)
        return _expect(is_one, value, where)
    if origin is tuple:
        return _decode_tuple(arguments, value, where)
    if is_dataclass(kind):
        return _decode_record(kind, value, where)
    if kind is Path:
        return Path(_expect(isinstance(value, str), value, where))
    if origin is not None:
        _expect(isinstance(value, Mapping), value, where)
        return {name: _decode(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    if type(value) in (int, float):
        _expect(abs(value) <= _MOST, value, where)  # nor is it NaN
    whole = kind is float and type(value) is int
    return _expect(type(value) is kind or whole, value, where)


def _the_one_of(kinds: list[Any], value: Any) -> Any:
    """Of several records, the one whose members the value has, and all that it asks for."""
    told = set(value) if isinstance(value, Mapping) else set()
    members = {one: {field.name for field in fields(one)} for one in kinds if is_dataclass(one)}
    alike: list[Any] = [one for one, names in members.items() if told <= names]
    whole = (kind for kind in alike if _asked(kind) <= told)
    return kinds[0] if len(kinds) == 1 else next(whole, next(iter(alike), kinds[0]))


@cache
def _asked(kind: type) -> frozenset[str]:
    needed = (one for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    return frozenset(one.name for one in needed)


def _decode_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(value, (list, tuple)), value, where)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    _expect(len(kinds) == len(value), value, where)
    return tuple(_decode(kind, item, where) for kind, item in zip(kinds, value, strict=True))


def _decode_record(kind: Any, value: Any, where: str) -> Any:
    _expect(isinstance(value, Mapping), value, where)
    hints = _hints(kind)
    members = {}
    for field in fields(kind):
        if field.name in value:
            members[field.name] = _decode(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.name in _asked(kind):
            raise WrongMember(f"{where}.{field.name} is missing")
    return kind(**members)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _expect(fits: bool, value: Any, where: str) -> Any:
    if not fits:
        raise WrongMember(f"{where} is {shown(value)}")
    return value
