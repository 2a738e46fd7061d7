"""Landlock: the kernel denies this process and its children all files and ports but those named here."""

import ctypes
import os
import stat
from collections.abc import Iterable

from runtime.ghost.inside.cage.kernel import call

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK = (1 << bit for bit in range(4, 10))
_MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(10, 16))
_SINCE = {_REFER: 2, _TRUNCATE: 3, _IOCTL_DEV: 5}
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
READ = _READ_FILE | _READ_DIR
RUN = _EXECUTE
WRITE = (
    READ
    | (_WRITE_FILE | _TRUNCATE | _REFER | _REMOVE_DIR | _REMOVE_FILE)
    | (_MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM)
)
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_PATH_BENEATH, _NET_PORT = 1, 2
_VERSION = 1
_DEVICES = ("null", "zero", "full", "random", "urandom")
_FIRST_PORT = 1024


class _Attributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class _Port(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def abi() -> int:
    """Return the version of Landlock in the kernel; 0 if it has none or it is turned off."""
    try:
        return call("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError:
        return 0


def restrict(writable: Iterable[str], runnable: Iterable[str], with_ports: bool) -> list[str]:
    """Allow writing, and running programs, only below these folders; return the protections from now on.

    `with_ports`: also allow TCP only to ports above 1023, if no network namespace shuts off the network.
    """
    version = abi()
    if not version:
        return []
    rules = _create(version, with_ports)
    try:
        for name in os.listdir("/"):  # noqa: PTH208 no Path needed
            if name != "dev":  # its GPUs would be used and its disks read
                _allow(rules, f"/{name}", READ, version)
        _allow(rules, "/", _READ_DIR, version)
        for place in runnable:
            _allow(rules, place, READ | RUN, version)
        for place in writable:
            _allow(rules, place, WRITE, version)
        for name in _DEVICES:
            _allow(rules, f"/dev/{name}", READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV, version)
        if with_ports and version >= 4:
            _allow_ports(rules)
        call("landlock_restrict_self", rules, 0)
    except OSError:
        return []
    finally:
        os.close(rules)
    return _holds(version, with_ports)


def _holds(version: int, with_ports: bool) -> list[str]:
    found = ["files (Landlock)"]
    if version < 3:
        found = ["files, but for cutting them off (Landlock)"]
    if version >= 5:
        found.append("devices (Landlock)")
    if with_ports and version >= 4:
        found.append("TCP below port 1024 (Landlock)")
    if version >= 6:
        found.append("signals to other processes (Landlock)")
    return found


def _create(version: int, with_ports: bool) -> int:
    every = sum(1 << bit for bit in range(16) if _SINCE.get(1 << bit, 1) <= version)
    ports = _BIND_TCP | _CONNECT_TCP if with_ports and version >= 4 else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0
    attributes = _Attributes(every, ports, scoped)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return call("landlock_create_ruleset", ctypes.byref(attributes), size, 0)


def _allow(rules: int, place: str, access: int, version: int) -> None:
    try:
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_A_FILE
        access &= sum(1 << bit for bit in range(16) if _SINCE.get(1 << bit, 1) <= version)
        rule = _Beneath(access, descriptor)
        call("landlock_add_rule", rules, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _allow_ports(rules: int) -> None:
    for port in (0, *range(_FIRST_PORT, 1 << 16)):
        rule = _Port(_BIND_TCP | (_CONNECT_TCP if port else 0), port)
        call("landlock_add_rule", rules, _NET_PORT, ctypes.byref(rule), 0)
