"""The loop over a decoder's layers, which a predicting device may shorten."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Item = TypeVar("Item")
Loop = Callable[[Iterable[Any], Callable[[Any], object]], Iterator[Any]]

_loop: ContextVar[Loop | None] = ContextVar("layer_loop", default=None)


@contextmanager
def loop_with(loop: Loop) -> Iterator[None]:
    """Use this loop for the layers inside. Only for meta tensors, where values do not matter."""
    token = _loop.set(loop)
    try:
        yield
    finally:
        _loop.reset(token)


def each_layer(layers: Iterable[Item], kind: Callable[[Item], object]) -> Iterator[Item]:
    """Yield all layers, or those that the loop of `loop_with` runs. Layers of one `kind` behave the same."""
    loop = _loop.get()
    yield from layers if loop is None else loop(layers, kind)
