"""Watches FlashInfer's public functions: each outermost call during which the tuner may be asked.

FlashInfer marks these functions with a decorator of its own, which must be replaced before the modules that
use it are imported. Only modules that mention the tuner are watched; other functions stay unchanged.
"""

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.flashinfer.inside.describe import Description, name_of
from runtime.ghost.inside.hooks import after

_TUNER = b"AutoTuner"

public: dict[str, Callable[..., Any]] = {}  # by their names below `flashinfer.`; classes by their __init__
_now = threading.local()
_watching = False
_made: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}


class Open:
    """A running call. `told` are its arguments as data, described when the tuner is first asked."""

    def __init__(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.name, self._arguments, self._named = name, arguments, named
        self.lookups: list[dict[str, Any]] = []
        self.is_new = False
        self.end: Callable[[Open], None] | None = None
        self.told: dict[str, Any] = {}
        self.unknown: list[str] = []

    def describe(self) -> None:
        if not self.told:
            description = Description(how_made)
            self.told = description.of(self._arguments, self._named)
            self.unknown = description.unknown


def watch() -> None:
    """Start watching. Until then watched functions behave as before, and `current` returns None."""
    global _watching
    _watching = True


def current() -> Open | None:
    return getattr(_now, "call", None)


def how_made(thing: Any) -> dict[str, Any] | None:
    known = _made.get(id(thing))
    return known[1] if known is not None and known[0]() is thing else None


@after("flashinfer.api_logging")
def _decorator(module: Any) -> None:
    inner = module.flashinfer_api

    @functools.wraps(inner)
    def flashinfer_api(func: Any = None, **options: Any) -> Any:
        if func is None:
            return lambda given: flashinfer_api(given, **options)
        return _watched(inner(func, **options))

    module.flashinfer_api = flashinfer_api


def _watched(function: Any) -> Any:
    name = name_of(function) if callable(function) else None
    if name is None or not speaks_of_tuner(function.__module__):
        return function
    if name.endswith(".__init__"):
        outer = _init(function)
        public[name.removesuffix(".__init__")] = outer
    else:
        outer = public[name] = _call(name, function)
    return outer


@functools.cache
def speaks_of_tuner(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and _TUNER in Path(file).read_bytes()


def _call(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def outer(*args: Any, **kwargs: Any) -> Any:
        if not _watching or current() is not None:
            return function(*args, **kwargs)
        call = _now.call = Open(name, args, kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            _now.call = None
            if call.end is not None:
                call.end(call)

    return outer


def _init(function: Callable[..., Any]) -> Callable[..., Any]:
    """Record how an object was made, because its own state cannot be written as data."""

    @functools.wraps(function)
    def outer(self: Any, *args: Any, **kwargs: Any) -> None:
        description = Description(how_made)
        told = {"function": name_of(type(self)), **description.of(args, kwargs)}
        function(self, *args, **kwargs)
        if not description.unknown and told["function"] is not None:
            _made[id(self)] = weakref.ref(self), told

    return outer
