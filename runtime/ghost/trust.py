"""Whether only this user or root can have written a file.

A loaded library runs as this user. So another user who may replace the library, or a folder or link on its
path, can run code as this user. Every step from / is judged on an opened descriptor.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

_MOST_LINKS = 40
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(ValueError):
    """Another user can have written this file, or it is not a regular file."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is not used: {reason}")
        self.path, self.reason = path, reason


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Yield a descriptor of the regular file `path`, which only this user or root can have written."""
    descriptor = _walked(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def objection(path: Path) -> str:
    """Return why `path` may not be loaded, or "" if it may."""
    try:
        os.close(_walked(path))
    except Untrusted as error:
        return error.reason
    except OSError as error:
        return f"it cannot be opened ({error.strerror})"
    return ""


def is_private(folder: Path) -> bool:
    """Whether only this user or root can have created the files of the folder."""
    try:
        os.close(_walked(folder, _judge_folder))
    except (Untrusted, OSError):
        return False
    return True


def _walked(path: Path, judge: Callable[[Path, Path, os.stat_result], None] | None = None) -> int:
    """Open each part of the path from / on, also of links' targets; return the descriptor of the file."""
    left = list(reversed(Path(os.path.abspath(path)).parts[1:]))  # noqa: PTH100 links must be left as they are
    folders = [os.open("/", _STEP)]
    links = 0
    try:
        _judge_folder(path, Path("/"), os.fstat(folders[-1]))
        while left:
            name = left.pop()
            if name == "..":
                if len(folders) > 1:
                    os.close(folders.pop())
                continue
            step = os.open(name, _STEP, dir_fd=folders[-1])
            folders.append(step)
            status, where = os.fstat(step), Path(f"/proc/self/fd/{step}").readlink()
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise Untrusted(path, f"{where} leads through too many links")
                _judge_owner(path, where, status)
                target = PurePosixPath(os.readlink("", dir_fd=step))
                os.close(folders.pop())
                if target.is_absolute():
                    while len(folders) > 1:
                        os.close(folders.pop())
                left.extend(reversed([part for part in target.parts if part != "/"]))
            elif left:
                _judge_folder(path, where, status)
            else:
                (judge or _judge_file)(path, where, status)
                return os.open(f"/proc/self/fd/{step}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        raise Untrusted(path, "it is no regular file")
    finally:
        for folder in folders:
            os.close(folder)


def _judge_owner(path: Path, where: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise Untrusted(path, f"{where} belongs to user {status.st_uid}, who is neither this user nor root")


def _judge_folder(path: Path, where: Path, status: os.stat_result) -> None:
    """Refuse a folder in which others may write, unless a sticky bit protects its files, as in /tmp."""
    if not stat.S_ISDIR(status.st_mode):
        raise Untrusted(path, f"{where} is no folder")
    _judge_owner(path, where, status)
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise Untrusted(path, f"others may write in {where} (chmod go-w {where})")


def _judge_file(path: Path, where: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Untrusted(path, f"{where} is no regular file")
    _judge_owner(path, where, status)
    if status.st_mode & _OTHERS_WRITE:
        raise Untrusted(path, f"others may write to {where} (chmod go-w {where})")
