"""Functions that a device runs as one kernel: it allocates its result and its declared temporaries.

On the CPU a kernel is a reference in plain torch, on meta tensors only its result. An observer sees one call,
however many ops the reference runs.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any

Meanwhile = Callable[..., Sequence[int]]
Watcher = Callable[["Kernel", tuple[Any, ...]], Any]
watcher: ContextVar[Watcher | None] = ContextVar("kernel_watcher", default=None)


def nothing(*_: Any) -> tuple[int, ...]:
    return ()


class Kernel:
    """A function as one kernel; its first argument is a tensor. `result` allocates what `run` returns,
    `meanwhile` are the bytes that a GPU holds until then, and `launches` counts the kernels of a server."""

    def __init__(
        self, run: Callable[..., Any], result: Callable[..., Any], meanwhile: Meanwhile, launches: int
    ) -> None:
        self.run, self.result, self.meanwhile, self.launches = run, result, meanwhile, launches
        update_wrapper(self, run)

    def __call__(self, *args: Any) -> Any:
        watched = watcher.get()
        return self.compute(args) if watched is None else watched(self, args)

    def compute(self, args: tuple[Any, ...]) -> Any:
        return self.result(*args) if args[0].is_meta else self.run(*args)


def kernel(
    result: Callable[..., Any], meanwhile: Meanwhile = nothing, launches: int = 1
) -> Callable[[Callable[..., Any]], Kernel]:
    return lambda run: Kernel(run, result, meanwhile, launches)


def in_place(*_: Any) -> None:
    """The result of a kernel that returns nothing."""
