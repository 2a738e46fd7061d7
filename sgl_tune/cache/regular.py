"""Files as FlashInfer writes them, member by member: a fleet's have the same keys and the same few choices,
and each of these is parsed once.

A JSON object is its members with commas between them, wherever one took the commas to be: where each piece is
one name and one value by themselves, the whole is those members. Any other file is parsed as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from runtime.server.flashinfer import GENERATION

_BEGINS, _BETWEEN, _ENDS, _MEANS = '{\n  "', ',\n  "', "\n}", '": '
_LONGEST = 4096
_DEEPEST = 20
_MOST = 32_768  # keys or values, of some hundred bytes each
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_JSON = json.JSONDecoder()


class Value:
    """`canonical` is its text in FlashInfer's checksum; `found` keeps what was found out about it, by whoever
    asked. None may change it: other files have it, too."""

    __slots__ = ("canonical", "found", "value")

    def __init__(self, value: Any, canonical: str) -> None:
        self.value = value
        self.canonical = canonical
        self.found: dict[Any, Any] = {}


class Members(NamedTuple):
    """Of one file, in its order: the value of a name stands where the name does."""

    names: Sequence[str]
    values: Sequence[Value]
    document: dict[str, Any]

    def without(self, reserved: Collection[str]) -> list[tuple[str, Value]]:
        return [pair for pair in zip(self.names, self.values, strict=True) if pair[0] not in reserved]


_names: set[str] = set()
_values: dict[str, Value] = {}


def members_of(text: str) -> Members | None:
    """None for what is not laid out so, says a key twice, or spells one with escapes."""
    if not (text.startswith(_BEGINS) and text.endswith(_ENDS)):
        return None
    pieces = text[len(_BEGINS) : -len(_ENDS)].split(_BETWEEN)
    # Loops in C, over what nearly always is known: this is what reading a thousand files waits for.
    names, _, texts = zip(*map(str.partition, pieces, repeat(_MEANS)), strict=True)
    values = [_values.get(told) or _parsed(name, told) for name, told in zip(names, texts, strict=True)]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not (_names.issuperset(names) or all(map(_is_plain, names))):
        return None
    document = {name: value.value for name, value in zip(names, known, strict=True)}
    return Members(names, known, document) if len(document) == len(names) else None


def canonical(members: Members) -> str:
    """Without the checksum itself."""
    ordered = sorted(members.without((GENERATION,)))  # no two names are equal, so no values are compared
    return "{" + ",".join([f'"{name}":{value.canonical}' for name, value in ordered]) + "}"


def _is_plain(name: str) -> bool:
    plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    if plain and len(name) <= _LONGEST:
        if len(_names) >= _MOST:
            _names.clear()
        _names.add(name)
    return plain


def _parsed(name: str, text: str) -> Value | None:
    if len(text) > _LONGEST or text.count("[") + text.count("{") > _DEEPEST:
        return None
    try:
        told, end = _JSON.raw_decode(text)
    except ValueError:
        return None
    if end < len(text):
        return None
    if name == GENERATION:  # another one in each file, and in no checksum
        return Value(told, "")
    if len(_values) >= _MOST:
        _values.clear()
    value = _values[text] = Value(told, _CANONICAL.encode(told))
    return value
