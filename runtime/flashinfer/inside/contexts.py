"""The open autotune(...) contexts, with their arguments as data."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from runtime.flashinfer.inside.describe import Description
from runtime.ghost.inside.hooks import after

_now = threading.local()


def stack() -> list[dict[str, Any]]:
    """Return the open contexts, outermost first, without those that a context opens itself."""
    return [{"name": one["name"], "arguments": one["arguments"]} for one in _open()]


def cache() -> str:
    """Return the cache file of the innermost context that names one, or ""."""
    return next((one["cache"] for one in reversed(_open()) if one["cache"]), "")


def _open() -> list[dict[str, Any]]:
    return list(getattr(_now, "stack", ()))


@after("flashinfer.autotuner")
def _tuner(module: Any) -> None:
    _replace("autotune", getattr(module, "autotune", None))


@after("flashinfer.autotune_cache")
def _second(module: Any) -> None:
    _replace("autotune_v2", getattr(module, "autotune_v2", None))


def _replace(name: str, real: Callable[..., Any] | None) -> None:
    if real is None:
        return
    outer = _watched(name, real)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("flashinfer") and vars(module).get(name) is real:
            setattr(module, name, outer)


def _watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    @contextlib.contextmanager
    def outer(*args: Any, **kwargs: Any) -> Iterator[Any]:
        entering, _now.entering = getattr(_now, "entering", False), True
        try:
            with real(*args, **kwargs) as given:
                _now.entering = entering
                if entering:
                    yield given
                    return
                before = _open()
                _now.stack = [*before, _told(name, real, args, kwargs)]
                try:
                    yield given
                finally:
                    _now.stack = before
        finally:
            _now.entering = entering

    return outer


def _told(name: str, real: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Describe a context. Its cache file is kept apart, because a path does not change what is tuned."""
    given = dict(inspect.signature(real).bind(*args, **kwargs).arguments)
    file = given.pop("cache", None)
    for place in ("cache_root", "persistent_cache"):
        given.pop(place, None)
    told = Description(lambda _: None).of((), given)["named"]
    return {"name": name, "arguments": told, "cache": str(file or "")}
