"""Read the header of a compiled file: its GPU, and whether the file is complete."""

from __future__ import annotations

import os
import struct

from sgl_tune.cache.folder import Folder

_CUDA_MACHINE = 190
_HEAD = 64
_NOATIME: int = getattr(os, "O_NOATIME", 0)
_MAGIC = b"\x7fELF"


def _head(folder: Folder, name: str) -> bytes:
    """Return the header, or nothing if it is no 64-bit file."""
    try:
        with os.fdopen(_opened(folder, name), "rb", buffering=0) as file:
            head: bytes = file.read(_HEAD)
    except OSError:
        return b""
    return head if len(head) == _HEAD and head[:4] == _MAGIC and head[4] == 2 else b""


def _opened(folder: Folder, name: str) -> int:
    """Open a file without changing its access time, if this user is its owner."""
    try:
        return folder.open(name, os.O_RDONLY | _NOATIME)
    except PermissionError:
        return folder.open(name, os.O_RDONLY)


def arch_of(folder: Folder, name: str) -> str | None:
    """Return a cubin's architecture, or None."""
    head = _head(folder, name)
    if not head or struct.unpack_from("<H", head, 18)[0] != _CUDA_MACHINE:
        return None
    flags: int = struct.unpack_from("<I", head, 48)[0]
    number = (flags >> 8) & 0xFFFF if head[8] >= 8 else flags & 0xFF
    return f"sm{number}" if 30 <= number < 1000 else None


def is_whole(folder: Folder, name: str, size: int) -> bool:
    """Whether a library contains its last section. A file that a killed linker left lacks it."""
    head = _head(folder, name)
    if not head:
        return False
    sections: int = struct.unpack_from("<Q", head, 40)[0]
    each, many = struct.unpack_from("<HH", head, 58)
    return sections + each * many <= size
