"""One process at a time adds or removes servers. The processes that it starts hold the lock with it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.locks import take_lock
from sgl_tune.servers.home import VARIABLE, why_not_ours

_NAME = ".lock"
_LONGEST = 200


@contextmanager
def locked(home: Path) -> Iterator[int]:
    """The lock's descriptor, in a folder that is made and is this user's own."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        unsafe = why_not_ours(home)
        if unsafe:
            raise UsageError(
                f"servers are not kept there: {unsafe}", f"set {VARIABLE} to a folder of your own"
            )
        held = os.open(home / _NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        why = f"{error.filename or home}: servers cannot be kept there: {error.strerror}"
        raise UsageError(why, f"set {VARIABLE} to a folder that this user may write in") from error
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode) or os.fstat(held).st_nlink != 1:
            raise UsageError(f"{home / _NAME} is no regular file of one name", "remove it")
        if take_lock(held) is False:
            who = os.pread(held, _LONGEST, 0).decode(errors="replace").strip() or "another process"
            raise WorkFailed(f"{home}: in use by {who}", "wait until it has finished, or end it")
        with suppress(OSError):  # on a full disk nobody learns who it is
            os.ftruncate(held, 0)
            os.pwrite(held, f"process {os.getpid()} on {socket.gethostname()}".encode(errors="replace"), 0)
        yield held
    finally:
        os.close(held)
