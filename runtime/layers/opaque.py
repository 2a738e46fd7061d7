"""Kernels that tracers and dispatch modes see as one op each, and that cost nothing where nobody looks.

The first call of any `torch.library.custom_op` imports torch's compiler, seconds that nobody here
has use for; what it is made of does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Any

import torch


class Opaque:
    def __init__(self, name: str, kernel: Callable[..., Any], mutates_args: Iterable[str]) -> None:
        self._kernel = kernel
        torch.library.define(name, torch.library.infer_schema(kernel, mutates_args=list(mutates_args)))
        torch.library.impl(name, "CompositeExplicitAutograd", kernel)
        space, _, short = name.partition("::")
        self._name, self._op = name, getattr(getattr(torch.ops, space), short).default
        update_wrapper(self, kernel)

    def register_fake(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        return torch.library.register_fake(self._name, fake)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or _is_watched():
            return self._op(*args, **kwargs)
        real = all(_is_plain(value) for value in (*args, *kwargs.values()))
        return self._kernel(*args, **kwargs) if real else self._op(*args, **kwargs)


def opaque_op(name: str, *, mutates_args: Iterable[str]) -> Callable[[Callable[..., Any]], Any]:
    """As `torch.library.custom_op`."""
    return lambda kernel: Opaque(name, kernel, mutates_args)


def _is_plain(value: Any) -> bool:
    """Not a tensor, or one with storage and without a tracer or a gradient."""
    if not isinstance(value, torch.Tensor):
        return True
    plain = type(value) is torch.Tensor or type(value) is torch.nn.Parameter
    return plain and not value.is_meta and not (value.requires_grad and torch.is_grad_enabled())


def _is_watched() -> bool:
    return torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack() > 0
