"""Print a command's human output as Markdown, for an issue or a pull request."""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TextIO

from sgl_tune.cli.format import Format, sink
from sgl_tune.cli.out import SCHEMA_VERSION, Output, printable
from sgl_tune.cli.table import Column

_NUMBERED = re.compile(r"\d+\. ")


class Markdown(Output):
    """Prints the first line as a heading, indented lines as lists, and commands as code."""

    is_document = True
    _last = ""  # the kind of the block before

    def line(self, text: str = "", style: str | None = None, indent: int = 0, hanging: int = 2) -> None:
        text = printable(self._as_called(text))
        if not text:
            return
        if not self._last:
            self._block("heading", f"### {text}")
        elif style == "cyan":
            self._block("code", f"    {text}")
        elif indent:
            mark = "" if _NUMBERED.match(text) else "- "
            self._block("list", f"{'  ' * (indent > 2)}{mark}{text.removeprefix('- ')}")
        else:
            self._block("text", f"**{text}**" if style == "bold" else text)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        cells = [[printable(self._as_called(str(cell))).replace("|", "\\|") for cell in row] for row in rows]
        titles = [column.title.lower() for column in columns]
        marks = ["---:" if column.right else "---" for column in columns]
        lines = (f"| {' | '.join(row)} |" for row in (titles, marks, *cells))
        self._block("table", "\n".join(lines))

    def _block(self, kind: str, text: str) -> None:
        apart = "\n" if self._last and (kind, self._last) != ("list", "list") else ""
        self._last = kind
        self._stdout.write(f"{apart}{text}\n")


def output_of(
    format: Enum, quiet: bool, version: int = SCHEMA_VERSION, stdout: TextIO | None = None
) -> Output:
    """Return what prints a result in the format that the user chose."""
    own = sink(format, quiet)
    if format.value == "markdown":
        return Markdown(Format.human, stdout, version=version)
    return Output(own, stdout, version=version)
