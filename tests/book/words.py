"""The words that rules compare an argument or a config.json's member with, by its name: as their sources have
them. A flag may have no list of choices, and no config class says which words a family knows."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.mutants.places import TREE

_RULES = TREE / "runtime/server"
_MOST = 12


@cache
def of_arguments() -> Mapping[str, tuple[str, ...]]:
    """`c.name == "word"`, `c.name in ("one", "two")`."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for node in _nodes(_RULES.glob("**/*.py")):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
            found[node.left.attr] |= dict.fromkeys(_texts(node))
    return {name: tuple(sorted(words))[:_MOST] for name, words in found.items()}


@cache
def of_members() -> Mapping[str, tuple[str, ...]]:
    """`f.only("name", "word")`, `f.get("name") == "word"`."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for node in _nodes((_RULES / "decoders").glob("*.py")):
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "only"
        ):
            first, *words = dict.fromkeys(_texts(node)) or [""]
            found[first] |= dict.fromkeys(words)
    return {name: tuple(sorted(words))[:_MOST] for name, words in found.items()}


def _nodes(paths: Iterator[Path]) -> Iterator[ast.AST]:
    for path in sorted(paths):
        if not path.stem.startswith("v0_"):
            yield from ast.walk(ast.parse(path.read_text()))


def _texts(node: ast.AST) -> list[str]:
    """In the order of the source."""
    found = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return [str(one.value) for one in sorted(found, key=lambda one: (one.lineno, one.col_offset))]
