"""Regular expressions of a config.json, over names of modules, in time that no expression can make long.

`re` takes exponential time for some. These are read into one automaton, which takes a step a character
whatever they are; what it does not know, a look-ahead or a back-reference, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runtime.server.errors import Unsupported

_MOST_STATES = 4000
_MOST_KNOWN = 20000
_SHORT: dict[str, Callable[[str], bool]] = {
    "d": str.isdecimal,
    "w": lambda c: c.isalnum() or c == "_",
    "s": str.isspace,
    "D": lambda c: not c.isdecimal(),
    "W": lambda c: not (c.isalnum() or c == "_"),
    "S": lambda c: not c.isspace(),
}
_END = ""  # what `$` reads, after the last character
Reads = Callable[[str], bool]


@dataclass(slots=True)
class _State:
    """Goes on by reading a character, or, without `reads`, by itself."""

    reads: Reads | None = None
    to: list[int] = field(default_factory=list)
    accepts: int | None = None


class Patterns:
    """As `re.match` takes them: from the start of a name, to anywhere in it."""

    def __init__(self, expressions: Sequence[str]) -> None:
        self._expressions = tuple(expressions)
        self._states: list[_State] = []
        self._known: dict[tuple[frozenset[int], str], tuple[frozenset[int], int]] = {}
        self._told: dict[str, int] = {}
        starts = [self._compiled(number, text) for number, text in enumerate(expressions)]
        self._start = self._closed(starts)

    def __reduce__(self) -> tuple[type[Patterns], tuple[tuple[str, ...]]]:
        return Patterns, (self._expressions,)

    def first(self, name: str) -> int | None:
        """The first of the expressions that matches."""
        found = self._told.get(name)
        if found is None:
            if len(self._told) > _MOST_KNOWN:
                self._told.clear()
            found = self._told[name] = self._first(name)
        return None if found == _MOST_STATES else found

    def _first(self, name: str) -> int:
        found, now = self._accepted(self._start), self._start
        for character in (*name, _END, _END):
            step = self._known.get((now, character))
            if step is None:
                if len(self._known) > _MOST_KNOWN:
                    self._known.clear()
                step = self._known[now, character] = self._step(now, character)
            now, accepted = step
            if not now:
                break
            found = min(found, accepted)
        return found

    def _step(self, now: frozenset[int], character: str) -> tuple[frozenset[int], int]:
        """Where that leads, and the first of the expressions that ends there."""
        reached: list[int] = []
        for number in now:
            state = self._states[number]
            if state.reads is not None and state.reads(character):
                reached.extend(state.to)
        after = self._closed(reached)
        return after, self._accepted(after)

    def _accepted(self, now: frozenset[int]) -> int:
        told = (self._states[number].accepts for number in now)
        return min((one for one in told if one is not None), default=_MOST_STATES)

    def _closed(self, numbers: Sequence[int]) -> frozenset[int]:
        found: set[int] = set()
        left = list(numbers)
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                state = self._states[number]
                if state.reads is None:
                    left.extend(state.to)
        return frozenset(found)

    def _compiled(self, number: int, text: str) -> int:
        reader = _Reader(text, self._states)
        start, end = reader.alternatives()
        if reader.at < len(text):
            raise reader.unknown()
        self._states[end].accepts = number
        return start


class _Reader:
    """Recursive descent; a piece is its first and its last state."""

    def __init__(self, text: str, states: list[_State]) -> None:
        self.text, self.states, self.at, self._depth = text, states, 0, 0

    def alternatives(self) -> tuple[int, int]:
        start, end = self._new(), self._new()
        while True:
            first, last = self._sequence()
            self.states[start].to.append(first)
            self.states[last].to.append(end)
            if self._next() != "|":
                return start, end
            self.at += 1

    def _sequence(self) -> tuple[int, int]:
        start = end = self._new()
        if self._next() == "^" and self.at == 0:
            self.at += 1
        while self._next() not in ("", "|", ")"):
            first, last = self._repeated()
            self.states[end].to.append(first)
            end = last
        return start, end

    def _repeated(self) -> tuple[int, int]:
        begun = self.at
        piece = self._atom()
        least, most = self._counts()
        if (least, most) == (1, 1):
            return piece
        stop = self.at
        start = end = self._new()
        for _ in range(least):
            end = self._appended(end, begun)
        if most is None:
            first, last = self._again(begun)
            loop = self._new()
            self.states[end].to.append(loop)
            self.states[loop].to.append(first)
            self.states[last].to.append(loop)
            end = loop
        else:
            leaves = [end]
            for _ in range(most - least):
                end = self._appended(end, begun)
                leaves.append(end)
            end = self._new()
            for one in leaves:
                self.states[one].to.append(end)
        self.at = stop
        return start, end

    def _appended(self, end: int, begun: int) -> int:
        first, last = self._again(begun)
        self.states[end].to.append(first)
        return last

    def _again(self, begun: int) -> tuple[int, int]:
        self.at = begun
        return self._atom()

    def _counts(self) -> tuple[int, int | None]:
        told = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self._next())
        if told is not None:
            self.at += 1
        elif self._next() == "{":
            told = self._braces()
        if told is None:
            return 1, 1
        if self._next() == "?":  # fewest first: it matches the same
            self.at += 1
        if self._next() in ("*", "+", "?", "{"):
            raise self.unknown()
        return told

    def _braces(self) -> tuple[int, int | None]:
        inner, closed, _ = self.text[self.at + 1 :].partition("}")
        least, comma, most = inner.partition(",")
        ok = closed and len(inner) < 8 and least.isascii() and least.isdigit()
        if not ok or (most and not (most.isascii() and most.isdigit())):
            raise self.unknown()
        self.at += len(inner) + 2
        low, high = int(least), int(most) if most else (None if comma else int(least))
        if max(low, high or 0) > 100 or (high is not None and high < low):
            raise self.unknown()
        return low, high

    def _atom(self) -> tuple[int, int]:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._reading(self._class())
        if character in ("*", "+", "?", "{", "^", ")"):
            raise self.unknown()
        self.at += 1
        if character == "$":
            return self._reading(lambda c: c == _END)
        if character == ".":
            return self._reading(lambda c: c != _END)
        if character == "\\":
            return self._reading(self._escaped())
        return self._reading(lambda c: c == character)

    def _group(self) -> tuple[int, int]:
        self.at += 1
        self._depth += 1
        if self._depth > 20:
            raise self.unknown()
        if self.text.startswith("?", self.at):
            if not self.text.startswith("?:", self.at):
                raise self.unknown()
            self.at += 2
        piece = self.alternatives()
        if self._next() != ")":
            raise self.unknown()
        self.at += 1
        self._depth -= 1
        return piece

    def _class(self) -> Reads:
        self.at += 1
        negated = self._next() == "^"
        self.at += negated
        tests: list[Reads] = []
        while self._next() != "]" or not tests:
            low = self._next()
            self.at += 1
            if low == "":
                raise self.unknown()
            if low == "\\":
                tests.append(self._escaped())
            elif self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                high = self.text[self.at + 1]
                self.at += 2
                tests.append(_between(low, high))
            else:
                tests.append(_between(low, low))
        self.at += 1
        return lambda c: c != _END and any(test(c) for test in tests) is not negated

    def _escaped(self) -> Reads:
        character = self._next()
        self.at += 1
        if character in _SHORT:
            test = _SHORT[character]
            return lambda c: c != _END and test(c)
        if character == "" or character.isalnum():
            raise self.unknown()
        return _between(character, character)

    def _reading(self, reads: Reads) -> tuple[int, int]:
        end = self._new()
        return self._new(_State(reads, [end])), end

    def _new(self, state: _State | None = None) -> int:
        if len(self.states) >= _MOST_STATES:
            raise Unsupported("quantization_config: its expressions are too many or too long to follow")
        self.states.append(state or _State())
        return len(self.states) - 1

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def unknown(self) -> Unsupported:
        return Unsupported(f"quantization_config: the expression {self.text[:60]!r} is not followed here")


def _between(low: str, high: str) -> Reads:
    return lambda c: low <= c <= high
