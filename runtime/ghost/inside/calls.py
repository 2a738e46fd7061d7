"""Calls into compiled host code. torch inside them allocates as usual, and what they write is not real."""

from typing import Any

from runtime.ghost.inside import small
from runtime.ghost.inside.library import DOUBTED
from runtime.ghost.inside.values import forget


class Call:
    """A function of a loaded module."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with small.off():
            result = self._function(*args, **kwargs)
        if small.runs():
            forget(*args, *kwargs.values(), mark=DOUBTED)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def outside_torch(function: Any) -> Any:
    """Wrap a function of compiled host code, to call it without the mode that keeps small values."""
    return function if function is None or isinstance(function, Call) else Call(function)
