"""Format a table for a terminal's width: long paths are shortened, wide rows continue on the next line."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_MIN_PATH = 16
_GAP, _BELOW = 2, 4  # between columns; before the continuation of a row


class Column(NamedTuple):
    """A column. `right`: align to the right. `path`: shorten its middle if the terminal is too narrow."""

    title: str
    right: bool = False
    path: bool = False


def columns_of(*titles: str) -> tuple[Column, ...]:
    """Return a table's columns: ">SIZE" is aligned to the right, and "WHERE/" holds paths."""
    return tuple(
        Column(title.removeprefix(">").removesuffix("/"), title[:1] == ">", title[-1:] == "/")
        for title in titles
    )


def laid_out(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None
) -> Iterable[list[str]]:
    """Yield the lines of the header, then the lines of each row."""
    shape = _shaped(columns, rows, width)
    for row in ([column.title for column in columns], *rows):
        yield [_whole(row, columns, shape.widths)] if width is None else list(_lines(row, columns, shape))


def shorten(text: str, width: int) -> str:
    """Cut the middle out of a text, because a path's beginning and last parts identify it."""
    if len(text) <= width or width < 5:
        return text
    parts = text.split("/")
    for kept in range(len(parts) - 1, 0, -1):
        short = "/".join([parts[0], "…", *parts[-kept:]])
        if len(short) <= width and kept < len(parts) - 1:
            return short
    tail = (width - 1) * 2 // 3
    return text[: width - 1 - tail] + "…" + text[-tail:]


class _Shape(NamedTuple):
    """The width of each column, and which columns share a line if a row needs several lines."""

    widths: list[int]
    lines: list[range]


def _shaped(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> _Shape:
    widths = [max([len(c.title), *(len(row[i]) for row in rows)]) for i, c in enumerate(columns)]
    everything = _Shape(widths, [range(len(columns))])
    if width is None:
        return everything
    shrunk, paths = list(widths), [i for i, column in enumerate(columns) if column.path]
    while paths and _taken(shrunk) > width:
        widest = max(paths, key=lambda i: shrunk[i])
        if shrunk[widest] <= _MIN_PATH:
            break
        shrunk[widest] -= 1
    if _taken(shrunk) <= width:
        return _Shape(shrunk, everything.lines)
    for i in paths:
        widths[i] = min(widths[i], max(_MIN_PATH, width - _BELOW))
    return _Shape(widths, list(_broken(widths, width)))


def _broken(widths: Sequence[int], width: int) -> Iterator[range]:
    first, room = 0, width
    for i in range(1, len(widths)):
        if _taken(widths[first : i + 1]) > room:
            yield range(first, i)
            first, room = i, width - _BELOW
    yield range(first, len(widths))


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _whole(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    """Return a row as one line, for a file or a pipe. Fast: such tables can have thousands of rows."""
    parts = [
        cell.rjust(width) if column.right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return (" " * _GAP).join(parts).rstrip()


def _lines(cells: Sequence[str], columns: Sequence[Column], shape: _Shape) -> Iterator[str]:
    for number, line in enumerate(shape.lines):
        parts = []
        for i in line:
            text = shorten(cells[i], shape.widths[i]) if columns[i].path else cells[i]
            parts.append(text.rjust(shape.widths[i]) if columns[i].right else text.ljust(shape.widths[i]))
        told = (" " * _GAP).join(parts).rstrip()
        if number == 0 or told:
            yield " " * (_BELOW if number else 0) + told
