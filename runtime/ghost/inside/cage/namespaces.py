"""A network of its own with only loopback, and a view of the file system without GPUs and services."""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from runtime.ghost.inside.cage.kernel import libc

_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE, _NOSUID, _NODEV, _NOEXEC = 4096, 16384, 1 << 18, 2, 4, 8
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_HIDDEN = ("/dev/shm", "/run")


def separate(needed: list[str]) -> list[str]:
    """Leave the machine's network and services; return the protections. Paths in `needed` stay visible.

    Each way is tried in a child first, because one that fails half-way would leave no loopback.
    """
    for ours in (True, False):
        if _succeeds(lambda ours=ours: _leave(ours, needed)):  # type: ignore[misc]
            _leave(ours, needed)
            return ["network (a network of its own)", "shared memory and services (mounts of its own)"]
    for ours in (True, False):
        if _succeeds(lambda ours=ours: _leave_network(ours)):  # type: ignore[misc]
            _leave_network(ours)
            return ["network (a network of its own)"]
    return []


def _succeeds(work: Callable[[], None]) -> bool:
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _leave(with_user: bool, needed: list[str]) -> None:
    _unshare(_NEW_NETWORK | _NEW_MOUNTS | _NEW_IPC, with_user)
    _raise_loopback()
    libc("mount", b"none", b"/", 0, _RECURSIVE | _PRIVATE, 0)
    for device in Path("/dev").glob("nvidia*"):
        if device.is_char_device():
            libc("mount", b"/dev/null", os.fsencode(device), 0, _BIND, 0)
    for place in _HIDDEN:
        in_use = any(os.path.realpath(path).startswith(f"{place}/") for path in needed)
        if Path(place).is_dir() and not in_use:
            _mount_empty(place)


def _leave_network(with_user: bool) -> None:
    _unshare(_NEW_NETWORK, with_user)
    _raise_loopback()


def _unshare(what: int, with_user: bool) -> None:
    user, group = os.geteuid(), os.getegid()
    libc("unshare", what | (_NEW_USER if with_user else 0))
    if with_user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(asked, _GET_FLAGS, request))[1]
        fcntl.ioctl(asked, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def _mount_empty(place: str) -> None:
    libc("mount", b"tmpfs", place.encode(), b"tmpfs", _NOSUID | _NODEV | _NOEXEC, b"mode=1777")
