"""The file that makes nodes believe each other."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sgl_tune.errors import UsageError

SHORTEST, _LONGEST = 16, 4096
HOW_TO_MAKE = "(umask 077; head -c 32 /dev/urandom | base64 > FILE), the same file on every node"


def read_secret(path: Path) -> bytes:
    try:
        secret = _read(path).strip()
    except OSError as error:
        raise UsageError(f"--secret-file {path}: {error.strerror}", HOW_TO_MAKE) from None
    if not SHORTEST <= len(secret) <= _LONGEST:
        size = f"{len(secret)} bytes, and a secret has {SHORTEST} to {_LONGEST}"
        raise UsageError(f"--secret-file {path} holds {size}", HOW_TO_MAKE)
    return secret


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # nobody waits for a FIFO's other end
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"--secret-file {path} is not a file", HOW_TO_MAKE)
        if about.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
            open_to = f"--secret-file {path}: others may use it (mode {stat.S_IMODE(about.st_mode):03o})"
            raise UsageError(open_to, f"chmod 600 {path}")
        return os.read(descriptor, _LONGEST + 2)
    finally:
        os.close(descriptor)
