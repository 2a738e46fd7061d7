"""Whether all memory that the arguments of skipped host code lead to is known, since it may be written."""

import ctypes
from typing import Any

from runtime.ghost.inside.library import library

PLAIN = {int, float, bool, str, bytes, type(None)}
LIBRARIES = {"torch", "tvm_ffi"}
NAMES = {"dtype", "device", "Device", "Stream"}  # classes of these libraries whose objects hold no memory
SMALLEST_ADDRESS = 1 << 32


class _Pointer(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("on_device", ctypes.c_void_p),
        ("on_host", ctypes.c_void_p),
        ("reserved", ctypes.c_long * 8),
    )


def cannot_follow(values: Any) -> str:
    """Return why the memory that these arguments lead to is not all known, or "" if it is."""
    for value in values:
        kind = value.__class__
        if kind is int and value >= SMALLEST_ADDRESS and _is_address(value):
            why = "it was given an address as a number"
        elif kind in PLAIN or getattr(value, "is_cuda", False):
            continue
        elif kind in (tuple, list):
            why = cannot_follow(value)
        elif hasattr(value, "data_ptr"):
            why = "it was given memory of the host, which its host code may write"
        elif kind.__module__.split(".")[0] in LIBRARIES and kind.__name__ in NAMES:
            continue
        else:
            why = f"it was given an object: {kind.__name__}"
        if why:
            return why
    return ""


def _is_address(number: int) -> bool:
    """Whether a number is an address in device memory, or in host memory that the GPU sees."""
    found = _Pointer()
    library().runtime("cudaPointerGetAttributes")(ctypes.byref(found), ctypes.c_void_p(number))
    return found.type != 0
