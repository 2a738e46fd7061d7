"""Keeps torch's compiler from being imported where nothing is compiled.

torch imports its compiler only to keep it away from the functions that compute shapes of meta tensors. That
takes a second in each process that predicts, a third of torch's own import.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_COMPILER = "torch._dynamo"


def leave_compiler_out() -> None:
    """Replace the compiler by a stub, until somebody uses more of it."""
    if _COMPILER not in sys.modules:
        spec, left_out = find_spec(_COMPILER), _LeftOut(_COMPILER)
        left_out.__spec__ = spec
        sys.modules[_COMPILER] = left_out


class _LeftOut(ModuleType):
    @staticmethod
    def disable(fn: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
        return fn if fn is not None else lambda decorated: decorated

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # what imports ask of a module that is there
            raise AttributeError(name)
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
        return getattr(import_module(_COMPILER), name)
