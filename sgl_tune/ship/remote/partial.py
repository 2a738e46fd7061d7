"""A file that is being downloaded. It belongs to this user alone, continues where an earlier attempt
stopped, and is hashed as it grows."""

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
    """A download. `path` leads to the opened file itself, even if its name is changed. `received`: the bytes
    that came now, of all attempts."""

    def __init__(self, folder: Folder, name: str, file: BinaryIO) -> None:
        self.path = Path(f"/proc/self/fd/{file.fileno()}")
        self._folder, self._name, self._file = folder, name, file
        self._hash = hashlib.sha256()
        self.bytes = self.received = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def take_up(self, most: int) -> int:
        """Hash what an earlier attempt left, and return its size. Bytes beyond `most` are cut off."""
        self._file.truncate(min(os.fstat(self._file.fileno()).st_size, most))
        while piece := self._file.read(_READ):
            self._count(piece)
        return self.bytes

    def take(self, piece: bytes) -> None:
        self._file.write(piece)
        self.received += len(piece)
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
        """Move the downloaded file to `output`, with the mode of any new file."""
        move(self._file, self._name, self._folder.descriptor, output)

    def _count(self, piece: bytes) -> None:
        self._hash.update(piece)
        self.bytes += len(piece)


@contextmanager
def arriving(folder: Path, name: str, needed: int, goes_on: bool = True) -> Iterator[Partial]:
    """Yield a file that is removed afterwards. Only after an error, and if `goes_on` is set, it stays for
    the next attempt with this name. If another pull is writing it, this pull gets a file of its own."""
    while True:
        with _folder(folder) as opened, _ours(opened, f"{name}{_SUFFIX}") as (part, file):
            if file is None:  # the folder was removed just now
                continue
            _forget_old(opened, part)
            check_room(folder, needed - os.fstat(file.fileno()).st_size, opened.descriptor)
            is_over = not goes_on
            try:
                yield Partial(opened, part, file)
                is_over = True
            finally:
                if is_over and _is_in_place(opened, part, file):  # else the name is another pull's
                    opened.unlink(part)
                if is_over:
                    with suppress(OSError):
                        folder.rmdir()
            return


@contextmanager
def _folder(path: Path) -> Iterator[Folder]:
    """Open the folder. It must be this user's alone: others could change a file after its check."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        try:
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            break
        except FileNotFoundError:  # another pull has finished and removed it
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
    """Yield the file and its name: this one, or a new one if another pull holds it. None: no folder."""
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


def check_room(path: Path, needed: int, folder: int | Path) -> None:
    """Check the free space before anything is written."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise WorkFailed(
            f"{path}: the bundle needs {human_bytes(needed)}, and {human_bytes(free)} are free",
            "free space, or choose a folder on another disk",
        )
