"""Recognise a bundle without importing its reader."""

import os
import stat
from pathlib import Path

GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def is_bundle(path: str | Path | None) -> bool:
    """Whether a file begins like a bundle. Nothing is read from a pipe or a device."""
    if path is None:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return regular and os.read(descriptor, 4).startswith((GZIP_MAGIC, ZSTD_MAGIC))
    except OSError:
        return False
    finally:
        os.close(descriptor)
