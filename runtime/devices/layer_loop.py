"""The loop over a decoder's layers, which a device that only predicts may cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Item = TypeVar("Item")
Loop = Callable[[Iterable[Any], Callable[[Any], object]], Iterator[Any]]

_loop: ContextVar[Loop | None] = ContextVar("layer_loop", default=None)


@contextmanager
def loop_with(loop: Loop) -> Iterator[None]:
    """Only where values do not matter, which is on meta tensors."""
    token = _loop.set(loop)
    try:
        yield
    finally:
        _loop.reset(token)


def each_layer(layers: Iterable[Item], kind: Callable[[Item], object]) -> Iterator[Item]:
    """All of them; under `loop_with`, as many as it takes. Layers of one `kind` do the same."""
    loop = _loop.get()
    yield from layers if loop is None else loop(layers, kind)
