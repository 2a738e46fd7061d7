"""What an op without side effects makes of meta tensors: worked out once for arguments that look alike.

Much of torch computes such results in Python, a third of a millisecond each and layer norms 3 ms: a third of
a prediction went there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from runtime.simulate.tensors import tensors_of

_META = torch.device("meta")
_MOST = 50_000
_NEW: Any = object()
# Equal ones differ: 1 and 1.0 and True do not promote alike.
_NUMBERS = (bool, int, float)
_PLAIN = (torch.Tensor, torch.nn.Parameter)

_Made = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


class KnownResults:
    """By an op and how its arguments look. None: not to be made from that."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[type, tuple[_Made, ...]] | None] = {}

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            key = (func, torch.get_default_dtype(), *map(_look, args), *map(_look, kwargs.items()))
        except _Unlike:
            return func(*args, **kwargs)
        known = self._made.get(key, _NEW)
        if known is _NEW:
            out = func(*args, **kwargs)
            if len(self._made) >= _MOST:
                self._made.clear()
            taken = {one.untyped_storage()._cdata for one in tensors_of((args, kwargs))}
            self._made[key] = _described(out, taken)
            return out
        if known is None:
            return func(*args, **kwargs)
        container, made = known
        tensors = [
            torch.empty_strided(size, stride, dtype=dtype, device=_META) for size, stride, dtype in made
        ]
        return tensors[0] if container is torch.Tensor else container(tensors)


class _Unlike(Exception):
    """An argument whose look does not tell what becomes of it."""


def _look(value: Any) -> Any:
    if value is None:
        return None
    kind = type(value)
    if kind in _PLAIN:
        # One without dimensions may stand for a number, which promotes otherwise.
        if value.device.type != "meta" or not value.dim() or value.is_complex():
            raise _Unlike
        return value.shape, value.stride(), value.dtype
    if kind in _NUMBERS:
        return kind, value
    if kind in (list, tuple, torch.Size):
        return kind, *map(_look, value)
    if kind in (str, torch.dtype, torch.device, torch.memory_format, torch.layout):
        return value
    raise _Unlike


def _described(out: Any, taken: set[int]) -> tuple[type, tuple[_Made, ...]] | None:
    """Not of what lies in a storage of the arguments: _unsafe_view is a view, and its schema hides it."""
    kind = type(out)
    tensors = [out] if kind is torch.Tensor else out
    if kind not in (torch.Tensor, list, tuple) or not all(type(one) is torch.Tensor for one in tensors):
        return None
    for one in tensors:
        if not _is_usual(one) or one.untyped_storage()._cdata in taken:
            return None
        taken.add(one.untyped_storage()._cdata)
    return kind, tuple((tuple(one.shape), one.stride(), one.dtype) for one in tensors)


def _is_usual(tensor: torch.Tensor) -> bool:
    """As if made without history: on meta, from the start of a storage as large as it needs."""
    if tensor.device.type != "meta" or tensor.is_complex() or tensor.storage_offset():
        return False
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
    return tensor.untyped_storage().nbytes() == like.untyped_storage().nbytes()
