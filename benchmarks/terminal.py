"""A command on a terminal of its own: what the screen showed, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

_ROWS = 200
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b\]8;[^\x1b\x07]*(?:\x1b\\|\x07)|\x1b[()][A-Z0-9]")
_COLOURS = {
    30 + n: name for n, name in enumerate(("black", "red", "green", "yellow", "blue", "magenta", "cyan"))
}


@dataclass(frozen=True, slots=True)
class Style:
    colour: str | None = None
    bold: bool = False
    dim: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """The screen from this second on, without its empty end."""

    second: float
    rows: tuple[tuple[tuple[str, Style], ...], ...]  # runs of one style


@dataclass
class Screen:
    """What a terminal makes of the few sequences that our commands send."""

    cells: list[list[tuple[str, Style]]] = field(default_factory=lambda: [[]])
    _row: int = 0
    _column: int = 0
    _style: Style = Style()

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            sequence = _SEQUENCE.match(text, place)
            if sequence:
                self._obey(sequence[1] or "", sequence[2] or "")
                place = sequence.end()
                continue
            self._put(text[place])
            place += 1

    def rows(self) -> tuple[tuple[tuple[str, Style], ...], ...]:
        told = [tuple(_runs(row)) for row in self.cells]
        while told and not told[-1]:
            told.pop()
        return tuple(told)

    def _put(self, character: str) -> None:
        if character == "\n":
            self._row += 1
        elif character == "\r":
            self._column = 0
        elif character >= " ":
            row = self._at()
            row.extend([(" ", Style())] * (self._column + 1 - len(row)))
            row[self._column] = (character, self._style)
            self._column += 1

    def _at(self) -> list[tuple[str, Style]]:
        while len(self.cells) <= self._row:
            self.cells.append([])
        return self.cells[self._row]

    def _obey(self, numbers: str, letter: str) -> None:
        if letter == "m":
            for code in map(int, filter(None, (numbers or "0").split(";"))):
                self._style = _styled(self._style, code)
        elif letter == "A":
            self._row = max(0, self._row - int(numbers or 1))
        elif letter == "K":
            row = self._at()
            del row[0 if numbers == "2" else self._column :]


def _styled(style: Style, code: int) -> Style:
    if code == 0:
        return Style()
    if code in (1, 2):
        return replace(style, bold=code == 1 or style.bold, dim=code == 2 or style.dim)
    return replace(style, colour=_COLOURS.get(code % 60 if code >= 90 else code, style.colour))


def _runs(row: Sequence[tuple[str, Style]]) -> Iterator[tuple[str, Style]]:
    text, style = "", Style()
    for character, own in row:
        if own != style and text:
            yield text, style
            text = ""
        text, style = text + character, own
    if text.strip():
        yield text.rstrip(), style


def recorded(command: Sequence[str], columns: int, cwd: str, seconds: float = 300) -> list[Frame]:
    """Each change of its screen, stdout and stderr on one."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    environment.pop("NO_COLOR", None)
    started = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=cwd, env=environment
    ) as child:
        os.close(theirs)
        screen, frames = Screen(), []
        for said in _chunks(ours):
            screen.feed(said)
            frames.append(Frame(time.monotonic() - started, screen.rows()))
            if time.monotonic() - started > seconds:
                child.kill()
    os.close(ours)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return frames


def _chunks(descriptor: int) -> Iterator[str]:
    pending = b""
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            return
        pending += data
        text = pending.decode(errors="ignore")
        pending = pending[len(text.encode()) :]
        # A sequence may have arrived in part.
        cut = text.rfind("\x1b")
        if cut >= 0 and not _SEQUENCE.match(text, cut):
            pending, text = text[cut:].encode() + pending, text[:cut]
        if text:
            yield text
