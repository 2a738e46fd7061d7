"""What is told of a recipe: its commands, how many ran, what was replaced, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

# A regular expression, and what takes its place.
Value = str | Callable[[re.Match[str]], str]
Replacements = Iterable[tuple[str, Value]]


class Told:
    def __init__(self, name: str, work: Path) -> None:
        self.name, self.commands, self.ran = name, 0, 0
        self.failures: list[str] = []
        self._work = str(work)
        self._replaced: dict[str, str] = {}
        self._left_out: dict[str, str] = {}

    def replaced(self, text: str, replacements: Replacements) -> str:
        for pattern, value in replacements:

            def put(found: re.Match[str], value: Value = value) -> str:
                mine = found.expand(value) if isinstance(value, str) else value(found)
                if mine != found[0]:
                    self.replace(found[0], mine)
                return mine

            text = re.sub(pattern, put, text)
        return text

    def replace(self, theirs: str, ours: str) -> None:
        self._replaced[theirs] = ours

    def leave_out(self, command: str, why: str) -> None:
        self.commands += 1
        self._left_out[command] = why

    def fail(self, what: str) -> None:
        self.failures.append(what)

    def text(self, seconds: float) -> str:
        lines = [f"{self.name}: {self.commands} commands, {self.ran} run, {seconds:.0f} s"]
        lines += [f"    replaced: {self._short(a)} -> {self._short(b)}" for a, b in self._replaced.items()]
        lines += [f"    not run: {self._short(what)} ({why})" for what, why in self._left_out.items()]
        lines += [f"    FAILED: {self._short(what)}" for what in self.failures]
        return "\n".join(lines)

    def _short(self, text: str) -> str:
        return text.replace(self._work, "WORK")
