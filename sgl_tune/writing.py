"""Write a file whole or not at all; what a disk refuses is the user's to mend."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sgl_tune.errors import UsageError


def check_place(path: Path) -> None:
    """Before the work and not after it."""
    there = next(above for above in path.absolute().parents if above.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{path} cannot be written: this user may not write in {there}", "name another file")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """The name to write to; it becomes `path` when everything is in it. A device would be lost to that."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} cannot be written: it is there and is no regular file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _beside(path) as part:
            yield part
            part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A new file of a name that nobody could have taken before, with the rights of any other."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o666 & ~mask)
        os.close(handle)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with written(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")  # half a character is no text
