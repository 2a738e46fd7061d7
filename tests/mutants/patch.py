"""Puts the new code of functions in the place of what is loaded, and tells what uses what."""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutants.places import TREE

OURS = ("runtime", "sgl_tune", "tests")


def replaced(file: str, source: str | ast.Module) -> bool:
    """Whether the changed functions could take their new code while all stays loaded."""
    path = str(TREE / file)
    new, old = (_codes(compile(text, path, "exec")) for text in (source, source_of(path)))
    if len(new) != len(old):
        return False
    pairs = [(was, now) for was, now in zip(old, new, strict=True) if was != now]
    if any(was.co_name == "<module>" for was, _ in pairs) and not _same_but_inner(pairs):
        return False
    for was, now in pairs:
        if was.co_freevars != now.co_freevars or was.co_name != now.co_name:
            return False
        for one in functions().get((path, was), ()):
            one.__code__ = now
    return True


def _same_but_inner(pairs: list[tuple[CodeType, CodeType]]) -> bool:
    """A module that differs in its functions' code alone."""
    was, now = next(pair for pair in pairs if pair[0].co_name == "<module>")
    return was.co_code == now.co_code and _constants(was) == _constants(now) and was.co_names == now.co_names


def _constants(code: CodeType) -> list[object]:
    return [(type(one), one) for one in code.co_consts if not isinstance(one, CodeType)]


@cache
def source_of(path: str) -> str:
    return Path(path).read_text()


def _codes(code: CodeType) -> list[CodeType]:
    """In the order of the source, the outer before the inner ones."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [code, *(found for one in inner for found in _codes(one))]


@cache
def functions() -> dict[tuple[str, CodeType], list[FunctionType]]:
    """All that are loaded, by file and code: to ask before objects are hidden from the collector."""
    found: dict[tuple[str, CodeType], list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(TREE)):
            found[one.__code__.co_filename, one.__code__].append(one)
    return found


@cache
def caches() -> list[_lru_cache_wrapper[object]]:
    """Of what is tried, to ask as early."""
    kept = [one for one in gc.get_objects() if isinstance(one, _lru_cache_wrapper)]
    return [one for one in kept if str(one.__module__).partition(".")[0] in OURS[:2]]


def forget() -> None:
    for one in caches():
        one.cache_clear()


def load_again(module: ModuleType) -> None:
    assert module.__spec__ is not None and module.__spec__.loader is not None
    module.__spec__.loader.exec_module(module)


@cache
def in_order() -> list[ModuleType]:
    """The project's modules, after those that they import."""
    needs = _needs()
    order: list[ModuleType] = []
    seen: set[str] = set()

    def place(name: str) -> None:
        if name not in seen:
            seen.add(name)
            for other in needs[name]:
                place(other)
            order.append(sys.modules[name])

    for name in needs:
        place(name)
    return order


def users(name: str) -> list[ModuleType]:
    needs, using = _needs(), {name}
    for one in in_order():
        if using & set(needs[one.__name__]):
            using.add(one.__name__)
    using -= {name}
    return [one for one in in_order() if one.__name__ in using]


@cache
def importers(file: str) -> frozenset[str]:
    """Files that import a file's module, or its package, by name."""
    name = file.removesuffix(".py").replace("/", ".")
    wanted = {name, name.rpartition(".")[0]} - {"runtime.server", "sgl_tune.keys"}
    using = [one for one, needed in _needs().items() if wanted & {*needed}]
    return frozenset(str(Path(str(sys.modules[one].__file__)).relative_to(TREE)) for one in using)


@cache
def _needs() -> dict[str, list[str]]:
    """What each loaded module of the project imports when it is loaded itself."""
    known = {
        name: one
        for name, one in list(sys.modules.items())
        if name.partition(".")[0] in OURS and str(getattr(one, "__file__", None)).endswith(".py")
    }
    imported = {name: [*_imported(module)] for name, module in known.items()}
    return {name: [one for one in those if one in known and one != name] for name, those in imported.items()}


def _imported(module: ModuleType) -> Iterator[str]:
    assert module.__file__ is not None
    for node in ast.parse(source_of(module.__file__)).body:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{one.name}" for one in node.names]
            yield from (name if name in sys.modules else node.module for name in whole)
