"""Small tensors hold what kernels would have computed: a dispatch mode repeats small operations on the CPU.

The CPU can read the ghost's device memory. An operation whose tensors are small and real runs twice: on the
ghost, which allocates the result and computes nothing, and on CPU tensors over the same bytes. Whatever any
other operation writes is marked as not real.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from runtime.ghost.inside.hooks import after

_mode: Any = None
_allowed = True
_python_operators: set[str] = set()
# The dispatch keys under which a Python function is the kernel on a GPU.
_KEYS = {"CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd", ""}


def allow(values: bool) -> None:
    """Whether `on` does anything."""
    global _allowed
    _allowed = values


def on() -> None:
    """Keep small values from now on, in this thread."""
    global _mode
    if _mode is None and _allowed:
        from runtime.ghost.inside.mode import Small

        _mode = Small(_python_operators)
        _mode.__enter__()


def off() -> AbstractContextManager[Any]:
    """A context in which torch dispatches as if no mode were on: for compiled code that calls torch."""
    if _mode is None:
        return nullcontext()
    import torch

    return torch._C._DisableTorchDispatch()  # type: ignore[no-any-return]


@after("torch.library")
def _library(module: Any) -> None:
    """A kernel that is a Python function runs below the mode: its body gets the mode back."""
    inner = module.Library.impl

    def impl(self: Any, name: Any, function: Any, dispatch_key: str = "", **options: Any) -> Any:
        key = dispatch_key or self.dispatch_key
        if callable(function) and key in _KEYS and self.ns not in ("aten", "prims"):
            plain = name if isinstance(name, str) else name._schema.name
            _python_operators.add(f"{self.ns}::{plain.split('::')[-1].split('.')[0]}")
            function = _seen(function, options.get("with_keyset", False))
        return inner(self, name, function, dispatch_key, **options)

    module.Library.impl = impl


def _seen(function: Any, with_keyset: bool) -> Any:
    if with_keyset or type(function).__name__ == "OpOverload":
        return function

    def body(*args: Any, **kwargs: Any) -> Any:
        if _mode is None or _mode.is_on():
            return function(*args, **kwargs)
        with _mode:
            return function(*args, **kwargs)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        with suppress(AttributeError, TypeError):
            setattr(body, name, getattr(function, name))
    body.__wrapped__ = function  # type: ignore[attr-defined]
    return body
