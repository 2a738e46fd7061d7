"""The function and the arguments with which FlashInfer makes each of its compiled modules."""

from __future__ import annotations

import functools
import inspect
import sys
from types import FrameType
from typing import Any

from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.stream import say

PACKAGE, BEGINNING = "flashinfer.jit.", "gen_"
_told: set[str] = set()


@after("flashinfer.jit.core")
def _core(module: Any) -> None:
    """Watch `gen_jit_spec`, with which every maker ends, and which makers import from this module by name."""
    real = module.gen_jit_spec

    @functools.wraps(real)
    def gen_jit_spec(name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in _told:
            _told.add(name)
            found = _outermost(sys._getframe(1))
            if found is not None:
                say("maker", name=name, maker=found[0], arguments=found[1])
        return real(name, *args, **kwargs)

    module.gen_jit_spec = gen_jit_spec


def _outermost(frame: FrameType | None) -> tuple[str, list[Any]] | None:
    """Return the outermost maker on the stack and its arguments, or None if these are not data."""
    found = None
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith(PACKAGE) and name.startswith(BEGINNING):
            found = frame
        frame = frame.f_back
    if found is None or found.f_code.co_kwonlyargcount:
        return None
    told = inspect.getargvalues(found)
    if told.varargs or told.keywords:
        return None
    values = [_plain(told.locals.get(name)) for name in told.args]
    where = found.f_globals["__name__"].removeprefix(PACKAGE)
    return None if _NO_DATA in values else (f"{where}:{found.f_code.co_name}", values)


_NO_DATA = object()


def _plain(value: Any) -> Any:
    """Return a value as data. A dtype becomes its name, which `compile` turns back into a dtype."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    text = str(value)
    return text.removeprefix("torch.") if text.startswith("torch.") else _NO_DATA
