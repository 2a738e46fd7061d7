"""The function and the arguments with which FlashInfer makes each of its compiled modules."""

import inspect
import sys
from types import FrameType
from typing import Any

from runtime.ghost.inside.hooks import around
from runtime.ghost.inside.stream import say

PACKAGE, BEGINNING = "flashinfer.jit.", "gen_"
_NO_DATA = object()
_told: set[str] = set()


@around("flashinfer.jit.core", "gen_jit_spec")
def _watched(real: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Watch `gen_jit_spec`, with which every maker ends, and which makers import from this module by name."""
    if name not in _told:
        _told.add(name)
        found = _outermost(sys._getframe(1))
        if found is not None:
            say("maker", name=name, maker=found[0], arguments=found[1])
    return real(name, *args, **kwargs)


def _outermost(frame: FrameType | None) -> tuple[str, list[Any]] | None:
    """Return the outermost maker on the stack whose arguments are data, and these; or None."""
    found = None
    while frame is not None:
        where, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if where.startswith("flashinfer.") and name.startswith(BEGINNING):
            values = _data(frame)
            found = (f"{where.removeprefix(PACKAGE)}:{name}", values) if values is not None else found
        frame = frame.f_back
    return found


def _data(frame: FrameType) -> list[Any] | None:
    told = inspect.getargvalues(frame)
    if frame.f_code.co_kwonlyargcount or told.varargs or told.keywords:
        return None
    values = [_plain(told.locals.get(name)) for name in told.args]
    return None if _NO_DATA in values else values


def _plain(value: Any) -> Any:
    """Return a value as data. A dtype becomes its name, which `compile` turns back into a dtype."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    text = str(value)
    return text.removeprefix("torch.") if text.startswith("torch.") else _NO_DATA
