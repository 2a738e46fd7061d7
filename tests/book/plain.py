"""Values of the rules as JSON, and where two of them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import groupby
from typing import Any

from runtime.server.asked import Asked
from runtime.server.errors import ConfigError
from runtime.server.gpus import GpuModel
from runtime.server.patterns import Patterns
from runtime.server.releases import Release

_LONG = 8  # of equal neighbours in a list: they are counted


def plain(value: Any) -> Any:
    """A release, a GPU and the arguments are in the case itself. What is as its class has it is left out,
    so that a field more changes one row: tests/book/rows.py tells those."""
    if value is None or type(value) in (int, str, bool):  # most are
        return value
    return _way_of(type(value))(value)


@cache
def _way_of(kind: type) -> Callable[[Any], Any]:
    """To ask what a value is takes longer than to write it: each kind is asked once."""
    if issubclass(kind, (Release, GpuModel, Asked, Patterns)):
        return lambda value: None
    if issubclass(kind, type):
        return repr
    if is_dataclass(kind):
        usual = [(one.name, one.default) for one in fields(kind)]
        return lambda value: _unusual(value, usual)
    if issubclass(kind, Mapping):
        return lambda value: {str(name): plain(one) for name, one in value.items()}
    if issubclass(kind, Set):
        return lambda value: sorted(map(str, value))
    if issubclass(kind, Sequence) and not issubclass(kind, str):
        return lambda value: _counted([plain(one) for one in value])
    is_json = issubclass(kind, (int, float, str))
    return lambda value: value if is_json and value == value else repr(value)


def _unusual(record: Any, usual: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = {}
    for name, default in usual:
        value = getattr(record, name)
        if default is MISSING or value != default:
            found[name] = plain(value)
    return {name: member for name, member in found.items() if member is not None}


def whole(value: Any) -> Any:
    """With what is as usual, too."""
    if not isinstance(value, type) and members(value):
        return {name: whole(getattr(value, name)) for name in members(value)}
    return plain(value)


def members(row: Any) -> dict[str, Any]:
    """Of a dataclass or a named tuple, or one of them: what each is by default, or MISSING."""
    if is_dataclass(row):
        return {one.name: one.default for one in fields(row)}
    defaults = getattr(row, "_field_defaults", {})
    return {name: defaults.get(name, MISSING) for name in getattr(row, "_fields", ())}


def refusal(error: ConfigError) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "says": error.message,
        "remedy": error.remedy,
        "tries": plain(error.tries),
    }


def told(what: Callable[..., Any], *arguments: Any) -> Any:
    """Or why it is refused."""
    try:
        return plain(what(*arguments))
    except ConfigError as error:
        return {"refused": refusal(error)}


def differences(then: Any, now: Any, name: str = "") -> Iterator[str]:
    """Which member was what, and what it is."""
    if isinstance(then, dict) and isinstance(now, dict):
        for member in dict.fromkeys((*then, *now)):
            yield from differences(then.get(member), now.get(member), f"{name}.{member}".lstrip("."))
    elif then != now:
        yield f"{name}: {then!r:.600} is {now!r:.600}"


def _counted(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value, same in groupby(values):
        count = len([*same])
        found += [value] * count if count < _LONG else [f"{count} x", value]
    return found
