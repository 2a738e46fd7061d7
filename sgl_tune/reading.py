"""Read files that a user named and that may come from anyone: only regular files, up to a limited size."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from sgl_tune.errors import UsageError
from sgl_tune.units import human_bytes

LARGEST_TEXT = 8 << 20
DEEPEST = 60
_OPENED = (Path("/dev/fd"), Path("/proc/self/fd"))  # a shell's <(...), which our parent writes


def open_regular(path: Path, most: int) -> BinaryIO:
    """Open a regular file; raise OSError if it is too large, or a pipe or a device that could block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISFIFO(status.st_mode) and path.parent in _OPENED:
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        size = human_bytes(status.st_size)
        raise OSError(errno.EOVERFLOW, f"{size} are more than such a file can hold", str(path))
    what = "is a folder" if stat.S_ISDIR(status.st_mode) else "is no regular file"
    raise OSError(errno.EINVAL, what, str(path))


def bounded_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    with open_regular(path, most) as file:
        raw = file.read(most + 1)
    if len(raw) > most:  # the file grew meanwhile
        raise OSError(errno.EOVERFLOW, "grows while it is read", str(path))
    return raw


def read_bytes(path: Path, remedy: str | None = None, most: int = LARGEST_TEXT) -> bytes:
    try:
        return bounded_bytes(path, most)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", remedy) from error


def read_text(
    path: Path, remedy: str | None = None, most: int = LARGEST_TEXT, what: str = "is not text"
) -> str:
    """Return a file's text. `what`: the words of the error if it is no UTF-8."""
    try:
        return read_bytes(path, remedy, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} {what}: byte {error.start} is not UTF-8", remedy) from None


def read_object(path: Path, remedy: str | None = None, most: int = LARGEST_TEXT) -> dict[str, Any]:
    """Return the JSON object in a file."""
    text = read_text(path, remedy, most, "is not JSON")
    try:
        return object_of(text)
    except NoObject as why:
        raise UsageError(f"{path} {why}", remedy) from None


class NoObject(ValueError):
    """A text is no JSON object that can be read. The message says what it is."""


class NoJson(NoObject):
    """A text is no JSON, though it may be the beginning of some."""


def object_of(text: str | bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoJson(f"is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise NoObject(f"holds a {type(content).__name__}, not a JSON object")
    if is_deeper(content, DEEPEST):
        raise NoObject(f"is nested more than {DEEPEST} deep")
    return content


def is_deeper(value: Any, limit: int) -> bool:
    """Whether a value is nested deeper than this, without recursion, which fails on such a value."""
    level = [value]
    for _ in range(limit):
        nested = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for children in nested for child in children if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False
