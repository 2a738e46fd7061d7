"""A file that is on its way here: this user's alone, taken up where it broke off, hashed as it grows."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from sgl_tune.cache.folder import Folder
from sgl_tune.errors import WorkFailed
from sgl_tune.locks import take_lock
from sgl_tune.units import human_bytes
from sgl_tune.writing import move

_READ = 1 << 20
_KEPT_SECONDS = 7 * 86400
_SUFFIX = ".part"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Partial:
    """`path` leads to the opened file itself, whatever its name comes to mean."""

    def __init__(self, folder: Folder, name: str, file: BinaryIO) -> None:
        self.path = Path(f"/proc/self/fd/{file.fileno()}")
        self._folder, self._name, self._file = folder, name, file
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

    def keep(self, output: Path) -> None:
        """Move it to `output`, with the rights of any new file."""
        move(self._file, self._name, self._folder.descriptor, output)

    def _count(self, piece: bytes) -> None:
        self._hash.update(piece)
        self.bytes += len(piece)


@contextmanager
def arriving(folder: Path, name: str, needed: int, goes_on: bool = True) -> Iterator[Partial]:
    """The file is gone afterwards. Only after an error, and if the transfer `goes_on`, the next attempt with
    this name finds it. While another pull writes that file, this one has a file of its own."""
    while True:
        with _folder(folder) as opened, _ours(opened, f"{name}{_SUFFIX}") as (part, file):
            if file is None:  # the folder was taken away just now
                continue
            _forget_old(opened, part)
            _check_room(folder, needed - os.fstat(file.fileno()).st_size, opened)
            is_over = not goes_on
            try:
                yield Partial(opened, part, file)
                is_over = True
            finally:
                if is_over and _is_in_place(opened, part, file):  # or the name is another pull's
                    opened.unlink(part)
                if is_over:
                    with suppress(OSError):
                        folder.rmdir()
            return


@contextmanager
def _folder(path: Path) -> Iterator[Folder]:
    """Whoever may write there could change a file between its check and its use."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        try:
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            break
        except FileNotFoundError:  # another pull was done, and took it away
            continue
        except NotADirectoryError:
            raise _not_alone(path) from None
    with Folder(opened, path) as folder:
        status = os.fstat(opened)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise _not_alone(path)
        yield folder


def _not_alone(path: Path) -> WorkFailed:
    return WorkFailed(f"{path} is not a folder of this user's alone", "remove it")


@contextmanager
def _ours(folder: Folder, part: str) -> Iterator[tuple[str, BinaryIO | None]]:
    """This file, or a new one where another pull holds it; and its name. None: the folder is gone."""
    try:
        descriptor = os.open(part, _FLAGS, 0o600, dir_fd=folder.descriptor)
    except FileNotFoundError:
        yield part, None
        return
    with os.fdopen(descriptor, "r+b") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
            raise WorkFailed(f"{folder.path / part} is not what a pull left there", "remove it")
        if take_lock(file.fileno()) is not False and _is_in_place(folder, part, file):
            yield part, file
            return
    with _ours(folder, f"{token_hex(8)}{_SUFFIX}") as found:
        yield found


def _is_in_place(folder: Folder, name: str, file: BinaryIO) -> bool:
    status = folder.status(name)
    return status is not None and os.path.samestat(status, os.fstat(file.fileno()))


def _forget_old(folder: Folder, mine: str) -> None:
    for name in folder.names():
        status = folder.status(name) if name.endswith(_SUFFIX) and name != mine else None
        if status and time.time() - status.st_mtime > _KEPT_SECONDS:
            with suppress(OSError):
                folder.unlink(name)


def _check_room(path: Path, needed: int, folder: Folder) -> None:
    found = os.fstatvfs(folder.descriptor)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise WorkFailed(
            f"{path}: the bundle needs {human_bytes(needed)} there, and {human_bytes(free)} are free",
            "free space, or choose a folder on another disk",
        )
