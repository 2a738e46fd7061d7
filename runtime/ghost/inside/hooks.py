"""Functions that run once, right after a named module of the server's own environment was imported."""

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Hook = Callable[[Any], None]
_hooks: dict[str, list[Hook]] = {}


def after(name: str, first: bool = False) -> Callable[[Hook], Hook]:
    """Decorate a function to run when a module is imported, or now; `first`: before earlier ones."""

    def add(hook: Hook) -> Hook:
        if name in sys.modules:
            hook(sys.modules[name])
        else:
            _hooks.setdefault(name, []).insert(0 if first else len(_hooks.get(name, ())), hook)
        return hook

    return add


def around(name: str, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that replaces a module's `f` or `Class.f` and is given the real one first."""

    def add(ours: Callable[..., Any]) -> Callable[..., Any]:
        def hook(module: Any) -> None:
            *outer, last = path.split(".")
            owner = functools.reduce(getattr, outer, module)
            real = getattr(owner, last)

            @functools.wraps(real)
            def replaced(*args: Any, **kwargs: Any) -> Any:
                return ours(real, *args, **kwargs)

            setattr(owner, last, replaced)

        hook.__module__ = ours.__module__  # as `leave_out` reads it
        after(name)(hook)
        return ours

    return add


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._busy: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _hooks or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_then_hook(module: ModuleType) -> None:
            execute(module)
            for hook in _hooks.pop(name, []):
                hook(module)

        spec.loader.exec_module = execute_then_hook  # type: ignore[method-assign]
        return spec


def leave_out(package: str) -> None:
    """Remove the hooks of a package: those of the ghost are not needed on a real GPU."""
    for name, hooks in _hooks.items():
        _hooks[name] = [hook for hook in hooks if not hook.__module__.startswith(f"{package}.")]


def install() -> None:
    """Watch imports from now on. Call this before torch is imported; a second call changes nothing."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
