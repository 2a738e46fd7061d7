"""Keeps imported objects out of every garbage collection, although a server unfreezes what is frozen.

CPython holds frozen objects in a separate list, which `gc.unfreeze` moves into the oldest generation. Each
collection after that would visit everything imported, and copy the memory pages that forked processes share.
"""

import ctypes
import gc
import sys
from typing import Any

_HEAD = 16  # before each object: the addresses of the next and of the previous one
_NEXT, _PREVIOUS, _FLAGS = 0, 8, 3
_lists: list[Any] = []  # of the lists set aside; the head of such a list lives as long as this process


def freeze_for_good() -> bool:
    """Freeze all objects. If CPython's lists are as expected, no later unfreeze brings them back."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        gc.freeze()
        if sys.version_info >= (3, 14) or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return False
        one: list[None] = []
        gc.freeze()
        last: list[None] = []
        gc.freeze()
        return _set_aside(id(one) - _HEAD, id(last) - _HEAD)
    finally:
        if was_on:
            gc.enable()


def _set_aside(one: int, last: int) -> bool:
    """Move the list of frozen objects, which should end with these two, to a list head of our own."""
    end = _at(last + _NEXT).value
    if _at(one + _NEXT).value != last or _at(last + _PREVIOUS).value & ~_FLAGS != one:
        return False
    if _at(end + _PREVIOUS).value != last:
        return False
    first = _at(end + _NEXT).value
    ours = (ctypes.c_size_t * 2)(first, last)
    _lists.append(ours)
    head = ctypes.addressof(ours)
    _at(first + _PREVIOUS).value = head | _at(first + _PREVIOUS).value & _FLAGS
    _at(last + _NEXT).value = head
    _at(end + _NEXT).value = _at(end + _PREVIOUS).value = end
    return True


def _at(address: int) -> ctypes.c_size_t:
    return ctypes.c_size_t.from_address(address)
