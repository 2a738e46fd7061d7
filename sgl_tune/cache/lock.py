"""The lock of a cache's folder: one writer at a time, whose name those that wait can print."""

import contextlib
import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sgl_tune.cache.folder import Folder
from sgl_tune.cache.layouts.cache import LOCK
from sgl_tune.errors import WorkFailed
from sgl_tune.locks import take_lock

LOCK_SECONDS = 60.0
NO_LOCKS = "no locks on this file system: if two processes write here at once, one may lose its results"
_QUIET_SECONDS = 2.0
_POLL_SECONDS = 0.05
_LONGEST_NAME = 200


class FolderBusy(WorkFailed):
    """Another process has been writing for longer than we wait."""


class Lock:
    """The lock of a cache's folder, held until closed. `is_real`: False if the disk has no locks."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        try:
            self._file = self._opened()
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise
            raise _no_lock(folder.path / LOCK) from None
        self.is_real = True
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            self.close()
            raise _no_lock(folder.path / LOCK)

    def _opened(self) -> int:
        """Open the lock file; raise FileNotFoundError if it was removed at this moment."""
        try:
            return self._folder.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return self._folder.open(LOCK, os.O_RDWR)

    def close(self) -> None:
        os.close(self._file)

    def wait(self, deadline: float, timeout: float, say: Callable[[str], None]) -> None:
        tells = min(time.monotonic() + _QUIET_SECONDS, deadline)
        told = False
        while not self._taken():
            if time.monotonic() >= deadline:
                raise FolderBusy(
                    f"{self._folder.path}: still in use by {self._holder()} after {timeout:.0f} s",
                    "wait until it has finished, or end it",
                )
            if time.monotonic() >= tells and not told:
                say(f"waiting for {self._holder()}, which is writing to {self._folder.path}")
                told = True
            time.sleep(_POLL_SECONDS)

    def _taken(self) -> bool:
        taken = take_lock(self._file)
        self.is_real = taken is not None
        return taken is not False

    def is_in_place(self) -> bool:
        """Whether this is still the folder's lock: a prune may have removed the folder while we waited."""
        named, held = self._folder.status(LOCK), os.fstat(self._file)
        return named is not None and os.path.samestat(named, held)

    def sign(self) -> None:
        if self._is_ours():
            text = f"process {os.getpid()} on {socket.gethostname()} ({_command()})"
            with contextlib.suppress(OSError):  # on a full disk, those that wait see no name
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, text.encode(errors="replace"), 0)

    def _holder(self) -> str:
        text = os.pread(self._file, _LONGEST_NAME, 0).decode(errors="replace") if self._is_ours() else ""
        return text or "another process"

    def _is_ours(self) -> bool:
        """Whether the lock file has one name. A hard link may be anybody's: it is not written or shown."""
        return os.fstat(self._file).st_nlink == 1


def _no_lock(path: Path) -> WorkFailed:
    return WorkFailed(f"{path}: is no regular file, so it cannot be the lock", "remove it")


def _command() -> str:
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
