"""Files as FlashInfer writes them: a fleet's are the same few texts but for the choices in them, and of each
text is found out once what it means.

A choice is a runner and a tactic, a line each. It is cut out where JSON allows nothing else to stand: behind
a line break, which no string has in it. What is left of a file is its shape, which is known once it was
parsed with a mark where each choice stood, and the marks came back as the entries' first elements.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, NamedTuple

from runtime.server.flashinfer import GENERATION, NEWEST
from sgl_tune.reading import is_deeper

_NUMBER = r"-?(?:0|[1-9][0-9]{0,8})"
_TACTIC = rf"(?:{_NUMBER}|\[\n      {_NUMBER},\n      {_NUMBER}\n    \])"
_CHOICE = re.compile(rf'\[\n    ("\w+",\n    {_TACTIC})(?=[,\n])'.encode())
_CHECKSUM = re.compile(rf'"{GENERATION}": "([0-9a-f]{{64}})"\n\}}\Z'.encode())
_LENGTH = len(GENERATION) + 72  # of what that matches
_LARGEST = 1 << 17
_DEEPEST = 20
_MOST_SHAPES, _MOST_CHOICES = 128, 32_768  # of some ten thousand and some ten bytes each
_MARK = '"(choice %d)"'
_MARKED = re.compile(r'"\(choice ([0-9]+)\)"')
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Choice(NamedTuple):
    """`canonical` is its text in FlashInfer's checksum. Those of one `kind` differ in nothing or in a tactic
    that is not below zero, which would mean something by itself."""

    canonical: str
    kind: str


class Shape:
    """What files have in common that differ in choices and the checksum alone. Nobody may change it.

    `around` is what stands around the choices in the checksum's text, `places` which of them follows each."""

    def __init__(self, marked: dict[str, Any], around: list[str], places: list[int]) -> None:
        self.members = {name: marked[name] for name in NEWEST.members if name in marked}
        self.entries = len(marked) - len(self.members)
        self._around, self._places = around, places

    def canonical(self, choices: list[Choice]) -> str:
        texts = [""] * (2 * len(self._places) + 1)
        texts[::2] = self._around
        texts[1::2] = [choices[place].canonical for place in self._places]
        return "".join(texts)


class Regular:
    """A file of such a shape."""

    def __init__(self, shape: Shape, choices: list[bytes], generation: str | None) -> None:
        self.shape, self._texts, self._generation = shape, choices, generation

    @cached_property
    def _choices(self) -> list[Choice]:
        # A loop over what nearly always is known: this is what judging a thousand files waits for.
        return [_choices.get(text) or _parsed(text) for text in self._texts]

    @property
    def alike(self) -> tuple[Shape, tuple[str, ...]]:
        """Equal for files that are the same but for tactics not below zero and the checksum."""
        return self.shape, tuple([choice.kind for choice in self._choices])

    def get(self, name: str) -> Any:
        """Of a member that is no entry."""
        return self._generation if name == GENERATION and self._generation else self.shape.members.get(name)

    def canonical(self) -> str:
        """Without the checksum itself."""
        return self.shape.canonical(self._choices)


# By what stands before the first choice, and whether a checksum ends it
_shapes: dict[tuple[bytes, bool], list[tuple[list[bytes], Shape | None]]] = {}
_choices: dict[bytes, Choice] = {}


def regular(raw: bytes) -> Regular | None:
    """None for what is to be parsed as a whole."""
    if len(raw) > _LARGEST:
        return None
    end = _CHECKSUM.search(raw, max(len(raw) - _LENGTH, 0))
    pieces = _CHOICE.split(raw[: end.start()] if end else raw)
    if len(pieces) == 1:
        return None
    shape = _shape_of(pieces[::2], ends=bool(end))
    if shape is None:
        return None
    return Regular(shape, pieces[1::2], end[1].decode() if end else None)


def _shape_of(between: list[bytes], ends: bool) -> Shape | None:
    """Compared, not hashed: to hash a whole file takes a quarter as long as to parse it."""
    begins = between[0], ends
    for known, shape in _shapes.get(begins, ()):
        if known == between:
            return shape
    if sum(map(len, _shapes.values())) >= _MOST_SHAPES:
        return None
    shape = _proved(between, ends)
    _shapes.setdefault(begins, []).append((between, shape))
    return shape


def _proved(between: list[bytes], ends: bool) -> Shape | None:
    """`ends`: the checksum follows."""
    marks = [_MARK % place for place in range(len(between) - 1)]
    try:
        first, *others = (piece.decode() for piece in between)
        cut = (f"[\n    {mark}{piece}" for mark, piece in zip(marks, others, strict=True))
        marked = json.loads("".join([first, *cut, f'"{GENERATION}": ""\n}}' if ends else ""]))
    except (ValueError, RecursionError):
        return None
    if not isinstance(marked, dict) or is_deeper(marked, _DEEPEST):
        return None
    firsts = [value[0] for name, value in marked.items() if name not in NEWEST.members and _begins(value)]
    around, places = _around(marked)
    in_entries = [_MARK % int(found[1]) for text in firsts if (found := _MARKED.fullmatch(f'"{text}"'))]
    has_end = not ends or next(reversed(marked)) == GENERATION
    if not (has_end and in_entries == marks and sorted(places) == list(range(len(marks)))):
        return None
    return Shape(marked, around, places)


def _begins(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _around(marked: dict[str, Any]) -> tuple[list[str], list[int]]:
    kept = {name: value for name, value in marked.items() if name != GENERATION}
    parts = _MARKED.split(_CANONICAL.encode(kept))
    return parts[::2], [int(place) for place in parts[1::2]]


def _parsed(text: bytes) -> Choice:
    if len(_choices) >= _MOST_CHOICES:
        _choices.clear()
    runner, tactic = json.loads(b"[" + text + b"]")
    choice = _choices[text] = Choice(_CANONICAL.encode([runner, tactic])[1:-1], _kind(runner, tactic))
    return choice


def _kind(runner: str, tactic: int | list[int]) -> str:
    """No runner has a space in its name."""
    if isinstance(tactic, int):
        return f"{runner} number" if tactic >= 0 else f"{runner} {tactic}"
    return f"{runner} pair" if min(tactic) >= 0 else f"{runner} {tactic}"
