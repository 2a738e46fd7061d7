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
    """Of the innermost lambda or statement, of a table its line; an argument's name as a flag, too."""
    lines = lines_of(source, start)
    function = function_at(source, places(source), start)
    line = source.count("\n", 0, start) + 1
    if function is None:
        lines = range(line, line + 1)
    elif function[0] == "<lambda>":
        inside = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Lambda)]
        lines = next(
            range(one.lineno, (one.end_lineno or line) + 1)
            for one in reversed(inside)
            if one.lineno <= line <= (one.end_lineno or line)
        )
    text = source.splitlines()[lines.start - 1 : lines.stop - 1]
    words = {word for one in text for word in re.findall(r"\w{4,}", one)}
    return words | {"--" + word.replace("_", "-") for word in words}
