"""Triton kernels are neither compiled nor launched; what they may write is no longer real."""

from __future__ import annotations

from typing import Any, ClassVar

from runtime.ghost.inside import small, stores
from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.library import library
from runtime.ghost.inside.stream import say
from runtime.ghost.inside.values import forget

_seen: set[str] = set()


class _Metadata:
    """What a compiled kernel tells of itself, for code that reads it."""

    name = "ghost"
    num_warps = 4
    num_ctas = 1
    num_stages = 1
    shared = 0
    tmem_size = 0
    cluster_dims = (1, 1, 1)
    target = None


class Kernel:
    """A compiled kernel that does nothing, for each place that launches one."""

    name = hash = "ghost"
    n_regs = 64
    n_spills = 0
    n_max_threads = 1024
    shared = 0
    function = 1
    packed_metadata = ()
    metadata = _Metadata()
    asm: ClassVar[dict[str, Any]] = {}

    def __getitem__(self, grid: Any) -> Any:
        return _nothing

    def run(self, *args: Any, **kwargs: Any) -> None: ...

    def launch_metadata(self, *args: Any) -> None: ...

    def _init_handles(self) -> None: ...

    def result(self) -> Kernel:
        return self


KERNEL = Kernel()


def _nothing(*args: Any, **kwargs: Any) -> None: ...


def seen(library: str, name: str) -> None:
    """Report a kernel that a start would compile, once."""
    if name not in _seen:
        _seen.add(name)
        say("kernel", library=library, name=name)


@after("triton.runtime.jit")
def _triton(module: Any) -> None:
    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Kernel:
        fn = self.fn
        name = f"{fn.__module__}.{fn.__qualname__}"
        if name not in _seen:
            library().appears("kernel")
        seen("triton", name)
        for hook in getattr(self, "pre_run_hooks", ()):
            hook(*args, **kwargs)
        if not warmup:
            library().launched()
        if not warmup and small.runs():
            _forget_stores(self, args, kwargs)
        return KERNEL

    module.JITFunction.run = run


def _forget_stores(function: Any, args: Any, kwargs: Any) -> None:
    written = stores.stored(function)
    if not written:
        return
    names = function.arg_names
    forget(*(value for name, value in zip(names, args, strict=False) if name in written))
    forget(*(value for name, value in kwargs.items() if name in written))
