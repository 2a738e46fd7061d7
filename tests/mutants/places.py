"""Where a change stands: in which function of its file, or in none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).parents[2]

# Its name and its first line; None is what the module itself does, once, when it is imported.
Function = tuple[str, int] | None
Places = list[tuple[int, int, Function]]


def places(source: str) -> Places:
    """From and to which byte, the inner ones last. Defaults and decorators are their surroundings'."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    return [
        (starts[first.lineno - 1] + first.col_offset, starts[last.end_lineno - 1] + last.end_col_offset, name)
        for first, last, name in _functions(ast.parse(source))
    ]


def function_at(source: str, found: Places, start: int) -> Function:
    at = len(source[:start].encode())
    return next((name for first, last, name in reversed(found) if first <= at < last), None)


def _functions(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt, Function]]:
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        yield node.body[0], node.body[-1], (node.name, first)
    elif isinstance(node, ast.Lambda):
        yield node.body, node.body, ("<lambda>", node.lineno)
    for child in ast.iter_child_nodes(node):
        yield from _functions(child)


def lines_of(source: str, start: int) -> range:
    """Those of the innermost statement; of one that holds others, its head's."""
    line = source.count("\n", 0, start) + 1
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # the outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            inner = getattr(node, "body", None)
            last = inner[0].lineno - 1 if inner else node.end_lineno or line
            found = range(node.lineno, max(last, node.lineno) + 1)
    return found if line in found else range(line, line + 1)


def words_at(source: str, start: int) -> set[str]:
    """Of the innermost lambda or statement, of a table its line and the release of its row."""
    line = source.count("\n", 0, start) + 1
    around = [one for one in ast.walk(ast.parse(source)) if _first(one) <= line <= (_last(one) or 0)]
    function = next((one for one in reversed(around) if isinstance(one, _FUNCTIONS)), None)
    rows: list[str] = []
    if function is None:
        lines = range(line, line + 1)
        rows = [word for one in around for word in _versions(one, source)]
    elif isinstance(function, ast.Lambda):
        lines = range(_first(function), (_last(function) or line) + 1)
    else:
        lines = lines_of(source, start)
    text = source.splitlines()[lines.start - 1 : lines.stop - 1]
    words = {word for one in text for word in re.findall(r"\w{4,}", one)}
    return {*words, *rows, *("--" + word.replace("_", "-") for word in words)}


def lines_around(source: str, start: int) -> range:
    """Those of the innermost function, which holds a branch or two; of a table none."""
    line = source.count("\n", 0, start) + 1
    found = range(0)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0):
            found = range(node.lineno, (node.end_lineno or 0) + 1)
    return found


_FUNCTIONS = (ast.FunctionDef, ast.Lambda)


def _first(node: ast.AST) -> int:
    return getattr(node, "lineno", 1 << 30)


def _last(node: ast.AST) -> int | None:
    return getattr(node, "end_lineno", None)


def _versions(node: ast.AST, source: str) -> list[str]:
    if not isinstance(node, ast.stmt):
        return []
    return re.findall(r'version="([\d.]+)"', ast.get_source_segment(source, node) or "")
