"""A process that cleans up after ours: `janitor.py FOLDER` waits until its pipe has no writer left. Lines
on the pipe name process groups that begin (+) and that have ended (-). What is left of the groups is asked
to end and then killed, and so are processes that left such a group and still have the group's setting (*)
in their environment. One line (=) identifies the folder, which is emptied and removed; another folder
under its name is left alone. It runs with -I -S and imports only the standard library."""

import os
import signal
import sys
import time
from contextlib import suppress

ASKED_SECONDS = 0.3  # SIGINT lets ninja end its compilers, which lead own groups
MARKED_SECONDS = 2.0


def identity(folder: int) -> str:
    status = os.fstat(folder)
    return f"{status.st_dev} {status.st_ino}"


def empty(folder: int) -> None:
    """Remove everything in an opened folder that this user may remove."""
    for _, folders, files, at in os.fwalk(".", topdown=False, dir_fd=folder):
        for name in (*files, *folders):
            with suppress(OSError):
                _remove(name, at)


def remove(folder: str, known: str) -> None:
    """Empty and remove the folder of this name, if it is the known one. If none is known, remove only an
    empty folder."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if known in ("", identity(opened)):
                if known:
                    empty(opened)
                os.rmdir(folder)  # noqa: PTH106 as few imports as can be
        finally:
            os.close(opened)


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=folder)


def marked(setting: bytes) -> set[int]:
    """Return the processes of this user that were started with this setting."""
    found = set()
    for name in os.listdir("/proc") if setting else ():  # noqa: PTH208 as few imports as can be
        with suppress(OSError):
            if name.isdigit() and setting in _environment(name).split(b"\0"):
                found.add(int(name))
    return found - {os.getpid()}


def _environment(process: str) -> bytes:
    with open(f"/proc/{process}/environ", "rb") as file:  # noqa: PTH123 as few imports as can be
        return file.read()


def _end_marked(setting: bytes) -> None:
    """Kill the processes with this setting until none is left, since they may start others."""
    limit = time.monotonic() + MARKED_SECONDS
    while (left := marked(setting)) and time.monotonic() < limit:
        for number in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.02)


def main(folder: str) -> None:
    running: set[int] = set()
    known = ""
    mark = b""
    for line in sys.stdin.buffer:
        if line[:1] == b"=":
            known = line[1:].decode().strip()
            continue
        if line[:1] == b"*":
            mark = line[1:].strip()
            continue
        number = int(line[1:])
        running = running | {number} if line[:1] == b"+" else running - {number}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        if running and number == signal.SIGTERM:
            time.sleep(ASKED_SECONDS)
    if running:
        _end_marked(mark)
    remove(folder, known)


if __name__ == "__main__":
    main(sys.argv[1])
