"""The tokens of a C++ source file, its includes and its macros, read without a compiler."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_PIECE = re.compile(
    r"""
      (?P<directive>(?m:^)[ \t]*\#(?:\\\r?\n|/\*.*?\*/|(?!//|/\*)[^\n])*)
    | (?P<skip>\n|[ \t\r\f\v]+|\\\r?\n|//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
    | (?P<string>(?:u8|[uUL])?(?:R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"))
    | (?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    | (?P<name>[A-Za-z_$]\w*)
    | (?P<mark>\.\.\.|<<<|>>>|::|->|&&|\|\||\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_MACRO = re.compile(r"([A-Za-z_]\w*)(?:\(([^)]*)\))?(.*)", re.DOTALL)
_INCLUDE = re.compile(r'\s*(["<])([^">]+)[">]')
_DEFINED = re.compile(r"\s*(!?)\s*defined\s*\(?\s*(\w+)\s*\)?\s*$")
# A CUDA compiler never defines these: they guard code for other GPUs.
OTHER_GPUS = {"USE_ROCM", "USE_MUSA", "__HIPCC__", "__HIP_PLATFORM_AMD__", "__MUSACC__", "__HIP__"}


class Token(NamedTuple):
    kind: str  # string, number, char, name or mark
    text: str
    line: int


class Include(NamedTuple):
    quoted: bool
    name: str
    line: int
    is_conditional: bool = False


class Macro(NamedTuple):
    name: str
    parameters: tuple[str, ...]
    tokens: tuple[Token, ...]


@dataclass
class Text:
    """One file's text: every branch of its conditionals, except those for other makers' GPUs."""

    file: Path
    tokens: list[Token] = field(default_factory=list)
    includes: list[Include] = field(default_factory=list)
    macros: list[Macro] = field(default_factory=list)


@lru_cache(maxsize=2048)
def read(file: Path) -> Text:
    """Read a file's text. Raises OSError and UnicodeDecodeError."""
    source = file.read_text(encoding="utf-8")
    text = Text(file)
    starts = [0, *(at.end() for at in re.finditer("\n", source))]
    branches = Branches(text.tokens)
    for kind, piece in _pieces(source):
        line = bisect_right(starts, piece.start())
        if kind == "directive":
            _directive(text, branches, piece.group(), line)
        elif branches.taken:
            text.tokens.append(Token(kind, piece.group(), line))
    return text


def _pieces(source: str) -> Iterator[tuple[str, re.Match[str]]]:
    for piece in _PIECE.finditer(source):
        if piece.lastgroup not in ("skip", None):
            yield "string" if piece.lastgroup == "end" else piece.lastgroup, piece


def _directive(text: Text, branches: Branches, written: str, line: int) -> None:
    word, _, rest = re.sub(r"/\*.*?\*/|\\\r?\n", " ", written.strip()[1:].strip(), flags=re.DOTALL).partition(
        " "
    )
    word, rest = (word, rest) if word.isalpha() else _glued(word, rest)
    if word in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
        branches.turn(word, rest)
    elif not branches.taken:
        return
    elif word == "include":
        found = _INCLUDE.match(rest)
        quoted, name = (found[1] == '"', found[2]) if found else (False, rest)
        text.includes.append(Include(quoted, name, line, branches.are_conditional))
    elif word == "define" and (found := _MACRO.match(rest.strip())):
        branches.guard(found[1])
        parameters = tuple(one.strip() for one in (found[2] or "").split(",") if one.strip())
        tokens = (Token(kind, one.group(), line) for kind, one in _pieces(found[3]) if kind != "directive")
        text.macros.append(Macro(found[1], parameters, tuple(tokens)))


def _glued(word: str, rest: str) -> tuple[str, str]:
    """Separate a directive from its argument in `#include<x>` and `#if(X)`, which have no blank."""
    found = re.match(r"[a-z]+", word)
    end = found.end() if found else len(word)
    return word[:end], f"{word[end:]} {rest}"


class Branches:
    """The conditionals around a place. Of branches that leave braces open, only the first one's count."""

    def __init__(self, tokens: list[Token]) -> None:
        self._open: list[_Branch] = []
        self._tokens = tokens

    @property
    def taken(self) -> bool:
        return all(one.taken is not False for one in self._open)

    @property
    def are_conditional(self) -> bool:
        """Whether a place may be left out. A header's own guard does not count."""
        return any(one.taken is None and not one.is_guard for one in self._open)

    def guard(self, name: str) -> None:
        """Take the definition of `name` as the header's guard, if the innermost branch tests for it."""
        if self._open and self._open[-1].absent == name:
            self._open[-1].is_guard = True

    def turn(self, word: str, condition: str) -> None:
        if word == "endif":
            if self._open:
                self._open.pop().end(self._tokens)
        elif word in ("else", "elif"):
            if self._open:
                self._open[-1].end(self._tokens)
                self._open[-1].next(word, condition)
        else:
            absent = condition.split("//")[0].strip() if word == "ifndef" else ""
            self._open.append(_Branch(_value(word, condition), absent, len(self._tokens)))


class _Branch:
    def __init__(self, taken: bool | None, absent: str, start: int) -> None:
        self.absent, self.is_guard = absent, False
        self.taken, self._start, self._is_settled = taken, start, False
        self._was_true = taken is True

    def end(self, tokens: list[Token]) -> None:
        """Drop unpaired braces of this branch if an earlier branch already had some."""
        loose = _loose(tokens, self._start)
        if loose and self._is_settled:
            tokens[self._start :] = [
                one for at, one in enumerate(tokens[self._start :], self._start) if at not in loose
            ]
        self._is_settled = self._is_settled or bool(loose)
        self._start = len(tokens)

    def next(self, word: str, condition: str) -> None:
        if self._was_true:
            self.taken = False
        elif word == "else":
            self.taken = True if self.taken is False else None
        else:
            self.taken = _value("if", condition)
            self._was_true = self.taken is True


def _loose(tokens: list[Token], start: int) -> set[int]:
    """Return the positions, from `start` on, of braces without a partner."""
    opened: list[int] = []
    closing: set[int] = set()
    for at in range(start, len(tokens)):
        if tokens[at].text == "{":
            opened.append(at)
        elif tokens[at].text == "}":
            if opened:
                opened.pop()
            else:
                closing.add(at)
    return closing | set(opened)


def _value(word: str, condition: str) -> bool | None:
    """Return a condition's value if it is certain; for None both branches are read."""
    condition = condition.split("//")[0].strip()
    if word in ("ifdef", "ifndef"):
        return (word == "ifndef") if condition in OTHER_GPUS else None
    if condition in ("0", "1"):
        return condition == "1"
    found = _DEFINED.match(condition)
    return (found[1] == "!") if found and found[2] in OTHER_GPUS else None
