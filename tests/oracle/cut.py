"""A method out of a module that cannot be imported: its source, and the imports that it names."""

from __future__ import annotations

import ast
import importlib.util
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def cut(names: tuple[str, ...], *files: str) -> Callable[..., Any]:
    """The first of `names` that one of SGLang's `files` defines."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    for file in files:
        path = Path(spec.origin).parent / "srt" / file
        if not path.is_file():
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in names:
                return _compiled(node, tree, path)
    raise LookupError(f"none of {names} in {files}: this release keeps it elsewhere")


def _compiled(function: ast.FunctionDef, tree: ast.Module, path: Path) -> Callable[..., Any]:
    function.returns = None
    for argument in [*function.args.args, *function.args.kwonlyargs]:
        argument.annotation = None
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    body = [*_imports(tree, used), function]
    names: dict[str, Any] = {"logger": logging.getLogger("cut")}
    exec(compile(ast.fix_missing_locations(ast.Module(body, [])), str(path), "exec"), names)
    return names[function.name]


def _imports(tree: ast.Module, used: set[str]) -> Iterator[ast.stmt]:
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            wanted = [alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) in used]
            if wanted:
                node.names = wanted
                yield node
