"""Runs a module's own statements again, and those of all that import it; what did not change stays the object
it was, and a class or a function that did takes its new ways where it was imported from."""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests.mutants.patch import forget, source_of, users
from tests.mutants.places import TREE

_FLAGS = __future__.annotations.compiler_flag
_MISSING = object()


def loaded_again(file: str, source: str) -> None:
    path = str(TREE / file)
    module = next(one for one in sys.modules.values() if getattr(one, "__file__", None) == path)
    moved = {module.__name__} if _run(module, source, set()) else set()
    for one in users(module.__name__):
        with suppress(pytest.skip.Exception):  # as when it was loaded: it needs a GPU
            if _run(one, source_of(str(one.__file__)), moved):
                moved.add(one.__name__)
    forget()


def _run(module: ModuleType, source: str, changed: set[str]) -> set[str]:
    """The names that now stand for something else; so do those of the `changed` modules."""
    path = str(module.__file__)
    stays = {ast.dump(node) for node in ast.parse(source_of(path)).body}
    scope, moved = module.__dict__, set[str]()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            if ast.dump(node) in stays and not moved & {*_read_at_once(node)}:
                continue
            old = scope[node.name]
            _execute(node, path, scope)
            if not _takes(old, scope[node.name]):
                moved.add(node.name)
            else:
                scope[node.name] = old
            continue
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and _is_bound(one)}
        names |= {one.asname or one.name for one in getattr(node, "names", ())}
        before = {name: scope.get(name, _MISSING) for name in names}
        _execute(node, path, scope)
        for name, old in before.items():
            if isinstance(old, ModuleType):
                moved |= {name} if old.__name__ in changed else set()
            elif _is_same(old, scope.get(name, _MISSING)):
                scope[name] = old
            else:
                moved.add(name)
    return moved


def _execute(node: ast.stmt, path: str, scope: dict[str, Any]) -> None:
    exec(compile(ast.Module([node], []), path, "exec", _FLAGS, dont_inherit=True), scope)


def _is_bound(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _is_same(old: object, new: object) -> bool:
    """1 is no True here, and what holds a tensor is only itself: to compare two raises."""
    if old is new or type(old) is not type(new):
        return old is new
    with suppress(RuntimeError, ValueError):
        return bool(old == new) and repr(old) == repr(new)
    return False


def _read_at_once(node: ast.AST) -> Iterator[str]:
    """Names that a definition reads where it stands: decorators, bases, defaults, what a class does."""
    if isinstance(node, ast.Name):
        yield node.id
    inner = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef):
        inner = [*node.decorator_list, *node.args.defaults, *(one for one in node.args.kw_defaults if one)]
    elif isinstance(node, ast.Lambda):
        inner = [*node.args.defaults]
    elif isinstance(node, ast.AnnAssign):
        inner = [node.value] if node.value is not None else []
    for one in inner:
        yield from _read_at_once(one)


def _takes(old: object, new: object) -> bool:
    """Whether the old object could become as the new one."""
    if isinstance(old, type) and isinstance(new, type):
        return _takes_members(old, new)
    kept = getattr(old, "__wrapped__", None)
    if kept is not None:
        return _takes(kept, getattr(new, "__wrapped__", None))
    if not isinstance(old, FunctionType) or not isinstance(new, FunctionType):
        return False
    if old.__code__.co_freevars != new.__code__.co_freevars:
        return False
    old.__code__, old.__defaults__ = new.__code__, new.__defaults__
    old.__kwdefaults__ = new.__kwdefaults__
    return True


def _takes_members(old: type, new: type) -> bool:
    if old.__dict__.keys() != new.__dict__.keys() or old.__bases__ != new.__bases__:
        return False
    for name, value in new.__dict__.items():
        code: CodeType | None = getattr(value, "__code__", None)
        if code is not None and "__class__" in code.co_freevars:
            continue
        if type(value).__name__ not in ("member_descriptor", "getset_descriptor", "mappingproxy"):
            setattr(old, name, value)
    return True
