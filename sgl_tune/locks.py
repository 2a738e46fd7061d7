"""Lock files and folders that the caller has opened and checked, without following a path."""

import errno

_LOCKLESS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)


def take_lock(descriptor: int) -> bool | None:
    """Lock a file; return False if another process holds it, None if the disk has no locks. Closing
    unlocks."""
    from filelock import lock_descriptor  # imports in 0.1 s, which a listing does not need

    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno in _LOCKLESS:
            return None
        raise
