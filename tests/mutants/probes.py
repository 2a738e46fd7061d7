"""The rules with a probe before each statement: which of them ran, at the speed of the rules themselves."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable

from tests.mutants.patch import replaced
from tests.mutants.places import TREE, Function

Calls = dict[str, frozenset[tuple[str, int]]]  # by file, as places.py names a function
Lines = dict[str, int]  # by file, a bit each
_HITS = "__hits__"


class Probes:
    """A byte each, which is 1 once its statement began."""

    def __init__(self, files: Iterable[str]) -> None:
        """In the place of what is loaded: it takes a process of its own."""
        self._hits = bytearray()
        self._places: list[tuple[str, tuple[str, int], int]] = []
        for file in files:
            path = str(TREE / file)
            tree = ast.parse((TREE / file).read_text())
            self._fill(tree, file, None)
            assert replaced(file, ast.fix_missing_locations(tree)), file
            for one in list(sys.modules.values()):
                if getattr(one, "__file__", None) == path:
                    one.__dict__[_HITS] = self._hits

    def told(self) -> tuple[Calls, Lines]:
        """What ran since it was asked last."""
        calls: dict[str, set[tuple[str, int]]] = defaultdict(set)
        lines: Lines = defaultdict(int)
        at = self._hits.find(1)
        while at >= 0:
            file, function, line = self._places[at]
            calls[file].add(function)
            lines[file] |= 1 << line
            self._hits[at] = 0
            at = self._hits.find(1, at)
        return {file: frozenset(found) for file, found in calls.items()}, dict(lines)

    def _fill(self, node: ast.AST, file: str, function: Function) -> None:
        if isinstance(node, ast.Lambda):
            inside = ("<lambda>", node.lineno)
            self._fill(node.args, file, function)
            self._fill(node.body, file, inside)
            probe = ast.parse(f"{_HITS}.__setitem__({self._new(file, inside, node.body.lineno)}, 1)").body[0]
            assert isinstance(probe, ast.Expr)
            node.body = ast.BoolOp(ast.Or(), [probe.value, node.body])
            return
        if isinstance(node, ast.FunctionDef):
            function = node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])
        for name, value in ast.iter_fields(node):
            inner = value if isinstance(value, list) else [value]
            filled: list[ast.AST] = []
            for one in inner:
                if isinstance(one, ast.stmt) and function is not None:
                    number = self._new(file, function, one.lineno)
                    filled += ast.parse(f"{_HITS}[{number}] = 1").body
                if isinstance(one, ast.AST):
                    self._fill(one, file, function)
                filled.append(one)
            if isinstance(value, list):
                setattr(node, name, filled)

    def _new(self, file: str, function: tuple[str, int], line: int) -> int:
        self._places.append((file, function, line))
        self._hits.append(0)
        return len(self._places) - 1
