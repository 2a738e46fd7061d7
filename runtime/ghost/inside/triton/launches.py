"""Triton kernels are specialized and compiled as on a GPU; what a launch may write is no longer real."""

from typing import Any

from runtime.ghost.inside import small, stores
from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.library import library
from runtime.ghost.inside.values import forget

_loaded: set[str] = set()
_met: dict[int, Any] = {}  # by id: a function's own hash is slow
_launches = 0


def launching() -> bool:
    """Whether a kernel is being compiled because it is launched."""
    return _launches > 0


@after("triton.runtime.jit")
def _jit(module: Any) -> None:
    launch = module.JITFunction.run

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        global _launches
        _launches += 1
        try:
            kernel = launch(self, *args, grid=grid, warmup=warmup, **kwargs)
        finally:
            _launches -= 1
        if id(self) not in _met:
            _meet(self)
        if not warmup and small.runs():
            _forget_stores(self, args, kwargs)
        return kernel

    module.JITFunction.run = run


def _meet(function: Any) -> None:
    """Charge a kernel's code at the first launch of a function of this name."""
    _met[id(function)] = function
    name = f"{function.fn.__module__}.{function.fn.__qualname__}"
    if name not in _loaded:
        _loaded.add(name)
        library().appears("kernel")


def _forget_stores(function: Any, args: Any, kwargs: Any) -> None:
    written = stores.stored(function)
    if not written:
        return
    names = function.arg_names
    forget(*(value for name, value in zip(names, args, strict=False) if name in written))
    forget(*(value for name, value in kwargs.items() if name in written))
