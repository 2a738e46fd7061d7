"""Files as FlashInfer writes them, member by member: a fleet's have the same keys and the same few choices,
and each of these is parsed once.

A JSON object is its members with commas between them, wherever one took the commas to be: where each piece is
one name and one value by themselves, the whole is those members. Any other file is parsed as a whole.
"""

from __future__ import annotations

import json
from typing import Any

from runtime.server.flashinfer import GENERATION

_BEGINS, _BETWEEN, _ENDS, _MEANS = '{\n  "', ',\n  "', "\n}", '": '
_LONGEST = 4096
_DEEPEST = 20
_MOST = 32_768  # keys or values, of some hundred bytes each
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Value:
    """`canonical` is its text in FlashInfer's checksum; `found` keeps what was found out about it, by whoever
    asked. None may change it: other files have it, too."""

    __slots__ = ("canonical", "found", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.canonical = _CANONICAL.encode(value)
        self.found: dict[Any, Any] = {}


Members = list[tuple[str, Value]]
_names: set[str] = set()
_values: dict[str, Value] = {}


def members_of(text: str) -> Members | None:
    """None for what is not laid out so, says a key twice, or spells one with escapes."""
    if not (text.startswith(_BEGINS) and text.endswith(_ENDS)):
        return None
    found = []
    for piece in text[len(_BEGINS) : -len(_ENDS)].split(_BETWEEN):
        name, _, told = piece.partition(_MEANS)
        value = _values.get(told) or _parsed(name, told)
        if value is None or not (name in _names or _is_plain(name)):
            return None
        found.append((name, value))
    return found if len(dict(found)) == len(found) else None


def canonical(members: Members) -> str:
    """Without the checksum itself."""
    ordered = sorted([(name, value.canonical) for name, value in members if name != GENERATION])
    return "{" + ",".join([f'"{name}":{told}' for name, told in ordered]) + "}"


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
        value = Value(json.loads(text))
    except ValueError:
        return None
    if name != GENERATION:  # another one in each file
        if len(_values) >= _MOST:
            _values.clear()
        _values[text] = value
    return value
