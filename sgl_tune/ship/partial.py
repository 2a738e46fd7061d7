"""A file that is on its way here: this user's alone, taken up where it broke off, hashed as it grows."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sgl_tune.errors import WorkFailed
from sgl_tune.units import human_bytes

_READ = 1 << 20
_KEPT_SECONDS = 7 * 86400
_SUFFIX = ".part"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PATIENCE_SECONDS = 1800.0
_QUIET_SECONDS, _POLL_SECONDS = 2.0, 0.1


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
def arriving(folder: Path, name: str, needed: int, note: Callable[[str], None]) -> Iterator[Partial]:
    """Gone afterwards, unless there was an error: then the next attempt with this name finds it."""
    _forget_old(folder)
    path = folder / f"{name}{_SUFFIX}"
    with _alone(path, note) as file:
        _check_room(folder, needed - os.fstat(file.fileno()).st_size)
        yield Partial(path, file)
        if _is_in_place(path, file):  # or it was moved away, and the name is another pull's
            path.unlink()
        with suppress(OSError):
            folder.rmdir()


def _in_folder(path: Path) -> int:
    """Whoever may write there could change a file between its check and its use."""
    not_alone = WorkFailed(f"{path.parent} is not a folder of this user's alone", "remove it")
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise not_alone from None
    try:
        status = os.fstat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise not_alone
        return os.open(path.name, _FLAGS, 0o600, dir_fd=folder)
    finally:
        os.close(folder)


@contextmanager
def _alone(path: Path, note: Callable[[str], None]) -> Iterator[BinaryIO]:
    """A regular file of this user's. Another pull at work on it is waited for; it takes the file away."""
    until = time.monotonic() + PATIENCE_SECONDS
    tells = time.monotonic() + _QUIET_SECONDS
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # who was waited for takes it away
        with _ours(path) as file:
            if file and _locked(file) and _is_in_place(path, file):
                yield file
                return
        if time.monotonic() > until:
            raise WorkFailed(
                f"{path}: another pull has been writing it for {PATIENCE_SECONDS:.0f} s", "end it"
            )
        if time.monotonic() > tells:
            note("waiting for another pull of the same bundle")
            tells = until
        time.sleep(_POLL_SECONDS)


@contextmanager
def _ours(path: Path) -> Iterator[BinaryIO | None]:
    """None where the folder was taken away just now."""
    try:
        descriptor = _in_folder(path)
    except FileNotFoundError:
        yield None
        return
    with os.fdopen(descriptor, "r+b") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
            raise WorkFailed(f"{path} is not what a pull left there", "remove it")
        yield file


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _is_in_place(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


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
