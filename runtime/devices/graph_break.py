"""What runs eagerly in the midst of a captured forward, and is no part of the graph: a prediction is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

Break = Callable[[], AbstractContextManager[None]]

_break: ContextVar[Break] = ContextVar("graph_break", default=nullcontext)


@contextmanager
def breaks_told_to(told: Break) -> Iterator[None]:
    token = _break.set(told)
    try:
        yield
    finally:
        _break.reset(token)


def outside_graph() -> AbstractContextManager[None]:
    return _break.get()()
