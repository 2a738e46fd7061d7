"""The only place that prints: results go to stdout, notes and errors go to stderr."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

from sgl_tune.cli.format import Format
from sgl_tune.cli.table import Column, laid_out, shorten
from sgl_tune.errors import UsageError

SCHEMA_VERSION = 1
SLOW_SECONDS = 2.0
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_DEEPEST = 60
_LONGEST = 2000
_LONG = 400
_LONGEST_SHOWN = 5000  # characters of a paragraph or a cell: a file may contain any text
_LONG_WORD = re.compile(rf"\S{{{2 * _LONG},}}")
_COMMAND = re.compile(r"\b(?:sgl-tune [a-z-]+ -|(?:[A-Z_\d]+=\S* )*(?:python3? -m|sglang serve) ).*")
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")


class Output:
    """Prints a command's result and its messages. Only this class decides how they look."""

    is_document = False

    def __init__(
        self,
        format: Format = Format.human,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        version: int = SCHEMA_VERSION,
    ) -> None:
        """`version`: the schema version of the JSON, if it is not the default."""
        self.format, self._version = format, version
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._path = self._called = ""
        self._is_shown = format is not Format.agent and self._stdout.isatty()  # to ask for each line is slow

    def calls(self, path: str, name: str) -> None:
        """From here on, print `name`, which the user typed, in place of the temporary `path`."""
        self._path, self._called = path, name

    def result(self, data: Mapping[str, Any], human: Callable[[], None], quiet: Iterable[str] = ()) -> None:
        """Print `data` in the chosen format. For the human format, `human` calls `line` and `table`."""
        if self.format is Format.json:
            indent = 2 if self._stdout.isatty() else None  # indenting 1 MB takes longer than reading it
            text = to_json({"schema_version": self._version, **data}, indent)
            self._stdout.write(self._as_called(text, json.dumps(self._called)[1:-1]) + "\n")
        elif self.format is Format.quiet:
            self._stdout.writelines(printable(self._as_called(line)) + "\n" for line in quiet)
        else:
            human()

    def line(self, text: str = "", style: str | None = None, indent: int = 0, hanging: int = 2) -> None:
        """Print one paragraph, folded at the terminal's width with a hanging indent."""
        if self.format is Format.agent:
            self._stdout.write(" " * indent + printable(self._as_called(text)) + "\n")
        elif self.format is Format.human:
            for part in _fold(_bounded(self._as_called(text)), self.width, indent, hanging):
                self._stdout.write(self._styled(part, style) + "\n")

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        if self.format not in (Format.human, Format.agent):
            return
        cells = [[printable(_bounded(self._as_called(str(cell)))) for cell in row] for row in rows]
        if self.format is Format.agent:
            titles = [column.title for column in columns]
            self._stdout.writelines("\t".join(row) + "\n" for row in (titles, *cells))
            return
        head, *lines = laid_out(columns, cells, self.width)
        self._stdout.writelines(self._styled(line, "bold") + "\n" for line in head)
        self._stdout.writelines(line + "\n" for row in lines for line in row)

    def fields(self, values: Mapping[str, object]) -> None:
        """Print one line per name and value; leave out values that are None."""
        width = max(map(len, values), default=0) + 2
        for name, value in values.items():
            if value is not None and self.format is Format.agent:
                self.line(f"{name}: {value}")
            elif value is not None:
                fits = self.width is None or 2 * width <= self.width
                self.line(f"{name:<{width}}{value}", indent=2, hanging=width if fits else 2)

    def note(self, text: str) -> None:
        if self.format is not Format.quiet:
            self._say("", text, None)

    def hint(self, text: str) -> None:
        if self.format is not Format.quiet:
            self._say("hint: ", text, "cyan")

    def warn(self, text: str) -> None:
        self._say("warning: ", _cut(text), "yellow")

    def error(self, message: str, remedy: str | None = None) -> None:
        self._say("error: ", _cut(message), "red")
        if remedy:
            self._say("  fix: ", remedy, "cyan")

    def confirm(self, question: str) -> bool:
        """Ask on the terminal. Without a terminal, raise a usage error; never assume yes."""
        if not sys.stdin.isatty():
            raise UsageError(f"no terminal to answer '{question}'", "add -y, or --dry-run to only look")
        self._stderr.write(f"{question} [y/N] ")
        self._stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    @property
    def width(self) -> int | None:
        """Return the width of the terminal that shows results, or None if results go to a file or a pipe."""
        return _width(self._stdout) if self._is_shown else None

    @property
    def is_live(self) -> bool:
        """Whether messages go to a terminal, where a progress line can be rewritten in place."""
        return self._stderr.isatty()

    def progress(self, label: str, total: int | None = None) -> "ProgressLine":
        silent = self.format is Format.quiet or (self.format is Format.json and not self.is_live)
        return ProgressLine(None if silent else self._stderr, label, total)

    def _styled(self, text: str, style: str | None) -> str:
        return _styled(text, style, self._stdout) if style and self._is_shown else text

    def _as_called(self, text: str, name: str | None = None) -> str:
        return text.replace(self._path, self._called if name is None else name) if self._path else text

    def _say(self, prefix: str, text: str, style: str | None) -> None:
        lines = _fold(prefix + self._as_called(text), _width(self._stderr), 0, hanging=len(prefix))
        if prefix and style:
            lines[0] = _styled(prefix, style, self._stderr) + lines[0][len(prefix) :]
        self._stderr.write("\n".join(lines) + "\n")
        self._stderr.flush()


class ProgressLine:
    """A progress message: silent for 2 s, then one rewritten line (terminal) or a line every 10 s (log)."""

    def __init__(
        self, stream: TextIO | None, label: str, total: int | None, patience: float = SLOW_SECONDS
    ) -> None:
        self._stream = stream
        self._label, self._total, self._done = label, total, 0
        self._started = time.monotonic()
        self._next = self._started + patience
        self._shown = 0

    def __enter__(self) -> "ProgressLine":
        return self

    def advance(self, steps: int = 1, detail: str = "") -> None:
        self._done += steps
        now = time.monotonic()
        if self._stream is None or now < self._next:
            return
        live = self._stream.isatty()
        self._next = now + (0.1 if live else 10.0)
        count = f"{self._done}/{self._total}" if self._total else str(self._done or "")
        text = " ".join(filter(None, (self._label, count, f"{now - self._started:.0f}s", detail)))
        if live:
            text = printable(shorten(text, _width(self._stream) or 80))
            self._stream.write("\r" + text.ljust(self._shown))
            self._shown = len(text)
        else:
            self._stream.write(printable(text) + "\n")
        self._stream.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Erase the progress line, so that another message can be printed on the same terminal."""
        if self._shown and self._stream is not None:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._stream.flush()
            self._shown = 0


def to_json(data: Any, indent: int | None = None) -> str:
    """Return valid JSON for any input: values that JSON lacks, such as NaN, and deep nesting are replaced."""
    try:
        return json.dumps(data, indent=indent, allow_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(_plain(data, 0), indent=indent, allow_nan=False)


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        return "(nested too deep)"
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def _cut(text: str) -> str:
    """Shorten long words and long texts, because a quoted file may contain a value of 1 MB."""
    text = _LONG_WORD.sub(lambda word: f"{word[0][: _LONG // 2]} ... {word[0][-_LONG // 2 :]}", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} ... {text[-295:]}"


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN // 2]} ... {text[-100:]}"


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that a cache file cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(stream: TextIO) -> int | None:
    """Return the terminal's columns, or None for a file or a pipe, where nothing is shortened or folded."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _styled(text: str, style: str | None, stream: TextIO) -> str:
    if not style or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def _fold(text: str, width: int | None, indent: int, hanging: int = 2) -> list[str]:
    margin = " " * indent
    text = printable(text)
    if width is None or len(text) + indent <= width:
        return [margin + text]
    found = _COMMAND.search(text)
    command = _SHELL_WORD.findall(found[0]) if found else []
    if found is None or any(word[-1] in ",;:`" for word in command):
        return _filled(text.split(" "), width, margin, hanging)
    prose = found.string[: found.start()].split(" ")[:-1]
    return _filled([*prose, *command], width, margin, hanging, len(prose))


def _filled(
    words: Sequence[str], width: int, margin: str, hanging: int, command: int | None = None
) -> list[str]:
    """Return lines of these words. `command`: from this word on they are a shell command, and a broken line
    of it ends with a backslash."""
    lines, line = [], margin
    for index, word in enumerate(words):
        is_inside = command is not None and index >= command
        if len(line) + len(word) + 1 + 2 * is_inside > width and line.strip():
            lines.append(f"{line} \\" if is_inside and index != command else line.rstrip())
            line = margin + " " * hanging + word
        else:
            line = f"{line} {word}" if line.strip() or not word else line + word
    return [*lines, line]
