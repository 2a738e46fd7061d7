"""Where a server's captured forward is not as this runtime's: a prediction is told.

Some of it runs eagerly in the midst of the graph, and some of it is one kernel there and several here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

Break = Callable[[], AbstractContextManager[None]]

_break: ContextVar[Break] = ContextVar("graph_break", default=nullcontext)
_fused: ContextVar[Break] = ContextVar("fused", default=nullcontext)


@contextmanager
def breaks_told_to(told: Break) -> Iterator[None]:
    token = _break.set(told)
    try:
        yield
    finally:
        _break.reset(token)


def outside_graph() -> AbstractContextManager[None]:
    return _break.get()()


@contextmanager
def fused_told_to(told: Break) -> Iterator[None]:
    token = _fused.set(told)
    try:
        yield
    finally:
        _fused.reset(token)


def fused_in_a_server() -> AbstractContextManager[None]:
    return _fused.get()()
