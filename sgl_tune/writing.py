"""Write a file completely or not at all. If the disk refuses, that is a usage error."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from sgl_tune.errors import UsageError
from sgl_tune.locks import take_lock

_PART = re.compile(r"\.sgl-tune-[0-9a-f]{16}\.part")
_OPENED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 100


def check_place(path: Path) -> None:
    """Raise UsageError if no file can be written there. Callers check before the work."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {folder}", "make it, or name another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: you may not write in {folder}", "name another file")


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that becomes `path` when it is complete. Devices are refused, because they would be
    replaced. Files that killed writers left in the folder are removed first."""
    with _folder_of(path) as folder:
        _sweep(folder)
        with _part(folder) as (name, file):
            yield file
            file.flush()
            _put(file, name, folder, path, folder)


def move(file: BinaryIO, name: str, above: int, path: Path) -> None:
    """Rename an opened file, `name` in the opened folder `above`, to `path`, with the mode of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    with _folder_of(path) as folder:
        os.fchmod(file.fileno(), 0o666 & ~mask)
        _put(file, name, above, path, folder)


@contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    """Yield the opened folder of a file that may be written; raise UsageError for any failure in it."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is there and is no regular file")
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _put(file: BinaryIO, name: str, above: int, path: Path, folder: int) -> None:
    """Rename the part to `path`; raise UsageError if another file has taken one of the names."""
    os.rename(name, path.name, src_dir_fd=above, dst_dir_fd=folder)
    if not _is(file.fileno(), path.name, folder):
        raise UsageError(f"{path} is another file than was written", "see who else writes in its folder")


@contextmanager
def _part(folder: int) -> Iterator[tuple[str, BinaryIO]]:
    """Yield a new file with the usual mode. Its lock shows others that it is being written."""
    for _ in range(_TRIES):
        name = f".sgl-tune-{token_hex(8)}.part"
        part = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPENED, 0o666, dir_fd=folder)
        with os.fdopen(part, "wb") as file:
            try:
                # Otherwise another writer is removing it at this moment.
                if take_lock(part) is not False and _is(part, name, folder):
                    yield name, file
                    return
            finally:
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
    raise FileNotFoundError(errno.ENOENT, "somebody removes every new file there")


def _sweep(folder: int) -> None:
    with suppress(OSError):
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            names = list(filter(_PART.fullmatch, os.listdir(listed)))  # noqa: PTH208 a descriptor is no path
        finally:
            os.close(listed)
        for name in names:
            _remove_dead(name, folder)


def _remove_dead(name: str, folder: int) -> None:
    """Remove this user's unfinished file if its writer is dead, which only locks can show."""
    with suppress(OSError):
        part = os.open(name, os.O_WRONLY | _OPENED, dir_fd=folder)
        try:
            status = os.fstat(part)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and take_lock(part):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(part)


def _is(file: int, name: str, folder: int) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(file))
    except FileNotFoundError:
        return False


def write_text(path: Path, text: str) -> None:
    with written(path) as file:
        file.write(text.encode("utf-8", errors="backslashreplace"))  # lone surrogates cannot be encoded
