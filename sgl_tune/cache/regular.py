"""Files as FlashInfer writes them, member by member: a fleet's have the same keys and the same few choices,
and each of these is parsed once.

A JSON object is its members with commas between them, wherever one took the commas to be: where each piece is
one name and one value by themselves, the whole is those members. Any other file is parsed as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import Any

from runtime.server.flashinfer import GENERATION

_BEGINS, _BETWEEN, _ENDS, _MEANS = '{\n  "', ',\n  "', "\n}", '": '
_LARGEST = 1 << 18
_LONGEST = 4096
_DEEPEST = 20
_MOST_NAMES, _MOST_VALUES = 128, 32_768  # of some ten thousand and some hundred bytes each
_SMALL = range(1 << 30)  # what is below zero means something by itself
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_JSON = json.JSONDecoder()


class Value:
    """`canonical` is its text in FlashInfer's checksum. Values of one `kind` differ in nothing or in a tactic
    that is a small number, or a pair of them. Nobody may change it: other files have it, too."""

    __slots__ = ("canonical", "kind", "value")

    def __init__(self, value: Any, canonical: str, kind: str) -> None:
        self.value, self.canonical, self.kind = value, canonical, kind


class Names:
    """Of one file's members, in their order, and what follows from the names alone."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.places = {name: place for place, name in enumerate(names)}

    @cached_property
    def _canonical(self) -> tuple[list[int], list[str]]:
        """The places in the checksum's order, without its own, and what stands before each value there."""
        ordered = sorted(name for name in self.places if name != GENERATION)
        return [self.places[name] for name in ordered], [f',"{name}":' for name in ordered]

    def canonical(self, values: Sequence[Value]) -> str:
        places, heads = self._canonical
        texts = [values[place].canonical for place in places]
        return "{" + "".join(chain.from_iterable(zip(heads, texts, strict=True)))[1:] + "}"


class Members:
    """Of one file: the value of a name stands where the name does."""

    def __init__(self, names: Names, values: Sequence[Value]) -> None:
        self.names, self.values = names, values

    @cached_property
    def document(self) -> dict[str, Any]:
        return {name: self.values[place].value for name, place in self.names.places.items()}

    @property
    def alike(self) -> tuple[Names, tuple[str, ...]]:
        """Equal for files that are the same but for small tactics and the checksum."""
        return self.names, tuple([value.kind for value in self.values])

    def get(self, name: str) -> Any:
        place = self.names.places.get(name)
        return None if place is None else self.values[place].value

    def canonical(self) -> str:
        """Without the checksum itself."""
        return self.names.canonical(self.values)


_names: dict[tuple[str, ...], Names] = {}
_values: dict[str, Value] = {}


def members_of(text: str) -> Members | None:
    """None for what is not laid out so, says a key twice, or spells one with escapes."""
    if not (text.startswith(_BEGINS) and text.endswith(_ENDS) and len(text) <= _LARGEST):
        return None
    pieces = text[len(_BEGINS) : -len(_ENDS)].split(_BETWEEN)
    # Loops in C, over what nearly always is known: this is what reading a thousand files waits for.
    names, _, texts = zip(*map(str.partition, pieces, repeat(_MEANS)), strict=True)
    try:
        values = [_values.get(told) or _parsed(name, told) for name, told in zip(names, texts, strict=True)]
        return Members(_names.get(names) or _checked(names), values)
    except ValueError:
        return None


def _checked(names: tuple[str, ...]) -> Names:
    known = Names(names)
    if len(known.places) < len(names) or not all(map(_is_plain, names)):
        raise ValueError("a name that stands there twice, or is spelt with escapes")
    if len(_names) >= _MOST_NAMES:
        _names.clear()
    _names[names] = known
    return known


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isprintable() and '"' not in name and "\\" not in name


def _parsed(name: str, text: str) -> Value:
    if len(text) > _LONGEST or text.count("[") + text.count("{") > _DEEPEST:
        raise ValueError("a value that is too much to remember")
    told, end = _JSON.raw_decode(text)
    if end < len(text):
        raise ValueError("more than one value")
    if name == GENERATION:  # another one in each file, and in no checksum
        return Value(told, "", "checksum")
    if len(_values) >= _MOST_VALUES:
        _values.clear()
    value = _values[text] = Value(told, _CANONICAL.encode(told), _kind(told))
    return value


def _kind(value: Any) -> str:
    """No JSON begins as those with a small tactic do."""
    match value:
        case [str(runner), tactic, *policy] if _is_small(tactic):
            return f"number {_CANONICAL.encode([runner, *policy])}"
        case [str(runner), [first, second], *policy] if _is_small(first) and _is_small(second):
            return f"pair {_CANONICAL.encode([runner, *policy])}"
    return _CANONICAL.encode(value)


def _is_small(tactic: Any) -> bool:
    return type(tactic) is int and tactic in _SMALL
