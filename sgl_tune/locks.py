"""Locks on files and folders that the caller has opened and checked: filelock's own, which follow no path."""

from __future__ import annotations

import errno

_LOCKLESS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)


def take_lock(descriptor: int) -> bool | None:
    """False where somebody else holds it; None where the file system has no locks. Closing gives it back."""
    from filelock import lock_descriptor  # a tenth of a second, which no listing waits for

    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno in _LOCKLESS:
            return None
        raise
