"""A file that is on its way here: this user's alone, taken up where it broke off, hashed as it grows."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sgl_tune.errors import WorkFailed
from sgl_tune.units import human_bytes

_READ = 1 << 20
_KEPT_SECONDS = 7 * 86400
_SUFFIX = ".part"


class Partial:
    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def take_up(self, most: int) -> int:
        """What is here from an earlier attempt; anything beyond `most` is not of it."""
        self._file.truncate(min(os.fstat(self._file.fileno()).st_size, most))
        while piece := self._file.read(_READ):
            self._count(piece)
        return self.bytes

    def take(self, piece: bytes) -> None:
        self._file.write(piece)
        self._count(piece)

    def begin_anew(self) -> int:
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.bytes = 0
        return self.bytes

    def flush(self) -> None:
        self._file.flush()

    def _count(self, piece: bytes) -> None:
        self._hash.update(piece)
        self.bytes += len(piece)


@contextmanager
def arriving(folder: Path, name: str, needed: int) -> Iterator[Partial]:
    """Gone afterwards, unless there was an error: then the next attempt with this name finds it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_folder(folder)
    _forget_old(folder)
    path = folder / f"{name}{_SUFFIX}"
    with _alone(path) as file:
        _check_room(folder, needed - os.fstat(file.fileno()).st_size)
        yield Partial(path, file)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()


def _check_folder(folder: Path) -> None:
    """Whoever may write there could change a file between its check and its use."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise WorkFailed(f"{folder} is not a folder of this user's alone", "remove it")


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """A regular file of this user's, and no other pull at work on it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
            raise WorkFailed(f"{path} is not what a pull left there", "remove it")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkFailed(f"{path}: another pull is writing it", "wait until it has finished") from None
        except OSError:  # a file system without locks
            pass
        yield file


def _forget_old(folder: Path) -> None:
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > _KEPT_SECONDS:
                path.unlink()


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise WorkFailed(
            f"{folder}: the bundle needs {human_bytes(needed)} there, and {human_bytes(free)} are free",
            "make room, or name another --cache-dir",
        )
