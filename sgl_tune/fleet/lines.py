"""A file of lines from many machines: each is bounded, and what is wrong with one costs no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sgl_tune.errors import UsageError
from sgl_tune.fleet.node import Node, UnreadLine, parse_node
from sgl_tune.reading import LARGEST_TEXT, open_regular
from sgl_tune.units import human_bytes

_LARGEST_FILE = 16 << 30
_MOST_LINES = 100_000


class Line(NamedTuple):
    """`size` with its end; `problem` where it is no node."""

    number: int
    size: int
    node: Node | None = None
    problem: str | None = None


def read_lines(path: Path) -> Iterator[Line]:
    """`-` is the standard input."""
    try:
        if str(path) == "-":
            yield from _lines(sys.stdin.buffer)
            return
        with open_regular(path, _LARGEST_FILE) as file:
            yield from _lines(file)
    except OSError as error:
        how = "one line of `sgl-tune env --format json` for each node"
        raise UsageError(f"--fleet {path} cannot be read: {error.strerror}", how) from error


def _lines(file: BinaryIO) -> Iterator[Line]:
    number = 0
    while raw := file.readline(LARGEST_TEXT):
        number += 1
        size = len(raw)
        if number > _MOST_LINES:
            yield Line(number, size, problem=f"more than {_MOST_LINES:,} lines: the rest was not read")
            return
        if size == LARGEST_TEXT and not raw.endswith(b"\n"):
            size += _skipped(file)
            yield Line(number, size, problem=f"it is longer than {human_bytes(LARGEST_TEXT)}")
        elif raw.strip():
            yield _line(number, raw)


def _line(number: int, raw: bytes) -> Line:
    try:
        return Line(number, len(raw), parse_node(raw))
    except UnreadLine as error:
        return Line(number, len(raw), problem=str(error))


def _skipped(file: BinaryIO) -> int:
    size = 0
    while more := file.readline(1 << 20):
        size += len(more)
        if more.endswith(b"\n"):
            break
    return size
