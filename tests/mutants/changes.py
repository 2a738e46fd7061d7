"""Small wrong changes of a Python source: what each one turns, moves, flips or drops, and where."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

_TURNED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_SWAPPED = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"), ast.Mod: ("%", "*"), ast.LShift: ("<<", ">>"), ast.BitOr: ("|", "&"),
}  # fmt: skip
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TYPES = {
    "Literal",
    "tuple",
    "list",
    "dict",
    "set",
    "frozenset",
    "Callable",
    "Iterator",
    "Mapping",
    "Sequence",
}
# What is said, not done: by name of the argument, or by its place in the call.
_SAID_AS = {"why", "because", "message", "remedy", "note", "warning", "source", "strict"}
_SAID_AT = {"settle": 0, "disable": 1, "disable_graphs": 1, "Gate": 1, "Unsupported": 0, "ConfigError": 0}


@dataclass(frozen=True)
class Change:
    """`source[start:end]` becomes `new`."""

    kind: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


@cache
def changes(source: str) -> tuple[Change, ...]:
    """Every one, in the order of the source. Annotations, docstrings and messages stay as they are."""
    place = _Places(source)
    found: list[Change] = []
    for node, path in _rules(ast.parse(source), ()):
        for kind, find in _KINDS.items():
            for first, last, new in find(node, path, place):
                old = source[first:last]
                line = source.count("\n", 0, first) + 1
                found.append(Change(kind, line, first, last, old, new))
    return tuple(sorted(found, key=lambda one: (one.start, one.kind, one.new)))


class _Places:
    """Where a node stands, in characters: ast counts bytes of a line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.AST) -> int:
        return self._at(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        return self._at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


Path = tuple[ast.AST, ...]
Edit = tuple[int, int, str]


def _rules(node: ast.AST, path: Path) -> Iterator[tuple[ast.AST, Path]]:
    """The nodes that decide something, each with its parents."""
    yield node, path
    silent = _silent(node)
    for child in ast.iter_child_nodes(node):
        if child not in silent and not isinstance(
            child, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
        ):
            yield from _rules(child, (*path, node))


def _silent(node: ast.AST) -> list[ast.AST]:
    """Children that no answer depends on."""
    if isinstance(node, ast.FunctionDef):
        if node.name == "__repr__":
            return list(ast.iter_child_nodes(node))
        annotations = [one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg)]
        return [one for one in (*node.decorator_list, node.returns, *annotations) if one is not None]
    if isinstance(node, ast.arg):
        return [node.annotation] if node.annotation is not None else []
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases]
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in _TYPES:
        return [node.slice]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return [node.value]
    if isinstance(node, ast.Raise):
        return [one for one in (node.exc, node.cause) if one is not None]
    if isinstance(node, ast.Call):
        said = [one for one in node.keywords if one.arg in _SAID_AS]
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        place = _SAID_AT.get(name)
        return [*said, *node.args[place : place + 1]] if place is not None else [*said]
    return []


def _comparison(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            old, new = _TURNED[type(op)]
            yield from _between(left, right, re.escape(old).replace(r"\ ", r"\s+"), new, at)
            left = right


def _junction(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _between(left, right, rf"\b{old}\b", new, at)


def _operand(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    """`a and b` without one of them: is each needed? In `a or 0` no other number stands for nothing."""
    if isinstance(node, ast.BoolOp):
        for one in node.values:
            if not (isinstance(one, ast.Constant) and one.value == 0):
                yield at.start(one), at.end(one), "True" if isinstance(node.op, ast.And) else "False"


def _arithmetic(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPPED:
        old, new = _SWAPPED[type(node.op)]
        yield from _between(node.left, node.right, re.escape(old), new, at)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        old, new = _SWAPPED[type(node.op)]
        yield from _between(node.target, node.value, re.escape(old), new, at)


def _function(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OPPOSITE:
        yield at.start(node.func), at.end(node.func), _OPPOSITE[node.func.id]


def _condition(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    """One that is a plain value: what stands in others is turned by itself."""
    if isinstance(node, (ast.If, ast.IfExp)) and not isinstance(
        node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)
    ):
        yield at.start(node.test), at.start(node.test), "not "


def _branch(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.IfExp):
        for one in (node.body, node.orelse):
            yield at.start(node), at.end(node), at.source[at.start(one) : at.end(one)]


def _keyword(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.Call):
        silent = _silent(node)
        for one in node.keywords:
            if one.arg is not None and one not in silent:
                comma = re.match(r"\s*,", at.source[at.end(one) :])
                yield at.start(one), at.end(one) + (comma.end() if comma else 0), ""


def _swap(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") in ("min", "max"):
        return
    silent = _silent(node)
    for left, right in zip(node.args, node.args[1:], strict=False):
        if silent or isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
            continue
        one, other = (at.source[at.start(part) : at.end(part)] for part in (left, right))
        if one != other:
            between = at.source[at.end(left) : at.start(right)]
            yield at.start(left), at.end(right), other + between + one


def _entry(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            first = at.source.rindex("**", 0, at.start(value)) if key is None else at.start(key)
            before = first if key is None else at.end(key)
            closing = r"\s*\)" * at.source[before : at.start(value)].count("(")
            after = re.match(closing + r"\s*,?", at.source[at.end(value) :])
            yield first, at.end(value) + (after.end() if after else 0), ""


def _step(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    """What is done, not said."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield at.start(node), at.end(node), "pass"


def _between(left: ast.AST, right: ast.AST, old: str, new: str, at: _Places) -> Iterator[Edit]:
    first, last = at.end(left), at.start(right)
    found = re.search(old, at.source[first:last])
    if found and "#" not in at.source[first:last]:
        yield first + found.start(), first + found.end(), new


def _number(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    """The last digit, up and down."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        step = 1 if isinstance(node.value, int) else 10.0 ** -len(str(node.value).partition(".")[2])
        for value in (node.value + step, node.value - step):
            yield at.start(node), at.end(node), str(round(value, 12) if step != 1 else value)


def _boolean(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield at.start(node), at.end(node), str(not node.value)


def _negation(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield at.start(node), at.start(node) + len("not"), ""


def _name(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    """A string without a space names something; one with spaces is read by people."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\S*", node.value):
        yield at.start(node), at.end(node), repr(node.value + "_").replace("'", '"')


def _ending(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    """A return or a refusal under a condition."""
    if isinstance(node, (ast.Return, ast.Raise)) and not isinstance(path[-1], ast.FunctionDef):
        yield at.start(node), at.end(node), "pass"


def _element(node: ast.AST, path: Path, at: _Places) -> Iterator[Edit]:
    if not isinstance(node, (ast.Tuple, ast.List, ast.Set)) or isinstance(
        getattr(node, "ctx", None), ast.Store
    ):
        return
    holder = path[-1]
    unpacked = isinstance(holder, ast.Assign) and isinstance(holder.targets[0], ast.Tuple)
    if unpacked or (
        isinstance(holder, (ast.Return, ast.Subscript, ast.Dict, ast.Compare)) and not _is_choice(path, node)
    ):
        return
    for one in node.elts:
        comma = re.match(r"\s*,", at.source[at.end(one) :])
        if isinstance(node, ast.Tuple) and len(node.elts) == 2 and one is node.elts[0]:
            other = node.elts[1]
            ends = re.match(r"\s*,", at.source[at.end(other) :])
            left = at.source[at.start(other) : at.end(other)]
            yield at.start(one), at.end(other), left if ends else left + ","
        elif comma or len(node.elts) > 1:
            yield at.start(one), at.end(one) + (comma.end() if comma else 0), ""


def _is_choice(path: Path, node: ast.AST) -> bool:
    """`in (1, 2)`, not a pair that is compared with another."""
    holder = path[-1]
    return (
        isinstance(holder, ast.Compare)
        and isinstance(holder.ops[-1], (ast.In, ast.NotIn))
        and holder.comparators[-1] is node
    )


_KINDS: dict[str, Callable[[ast.AST, Path, _Places], Iterator[Edit]]] = {
    "comparison turned": _comparison,
    "and for or": _junction,
    "number moved": _number,
    "switch flipped": _boolean,
    "not dropped": _negation,
    "name changed": _name,
    "ending dropped": _ending,
    "element dropped": _element,
    "operand dropped": _operand,
    "arithmetic swapped": _arithmetic,
    "opposite called": _function,
    "condition turned": _condition,
    "branch taken": _branch,
    "keyword dropped": _keyword,
    "arguments swapped": _swap,
    "entry dropped": _entry,
    "step dropped": _step,
}
KINDS = tuple(_KINDS)
