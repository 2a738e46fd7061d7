"""A filter of system calls: no sockets but TCP and local ones, and no calls that change the machine."""

import ctypes
import errno
import platform
from collections.abc import Iterator

from runtime.ghost.inside.cage.kernel import number, prctl

_SECCOMP, _FILTER = 22, 2
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_X32 = 0x40000000
_NEW_USER = 0x10000000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _KIND = 1, 2, 0xF
_DENIED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "perf_event_open", "userfaultfd", "bpf"),
    *("unshare", "setns", "chroot", "pivot_root", "mount", "umount2", "move_mount", "open_tree", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "quotactl", "acct", "swapon"),
    *("swapoff", "reboot", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("add_key", "request_key", "keyctl", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname", "syslog"),
    *("vhangup", "iopl", "ioperm"),
)

_Step = tuple[int, int, int, int]  # what, if true, if not: steps to leave out; a number


def restrict(with_datagrams: bool) -> list[str]:
    """Install the filter in this process and its children; return the protections from now on."""
    if platform.machine() not in _ARCHITECTURES:
        return []
    steps = [
        *_prologue(),
        *(step for name in _DENIED for step in _not_made(name, errno.EPERM)),
        *_not_made("clone3", errno.ENOSYS),
        *_checked_clone(),
        *_checked_socket(with_datagrams),
        (_RETURN, 0, 0, _ALLOW),
    ]
    if not _install(steps):
        return []
    sockets = [] if with_datagrams else ["sockets, but for TCP and local ones (seccomp)"]
    return ["system calls (seccomp)", *sockets]


def keep_together() -> bool:
    """Keep children in this process's group and session: calls to leave do nothing and report success."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    steps = [*_prologue(), *_not_made("setsid", 0), *_not_made("setpgid", 0), (_RETURN, 0, 0, _ALLOW)]
    return _install(steps)


def _prologue() -> Iterator[_Step]:
    """Yield steps that refuse calls of other processors and of x86-64's x32, which have other numbers."""
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, _ARCHITECTURES[platform.machine()]
    yield _RETURN, 0, 0, _FAIL | errno.EPERM
    yield _LOAD, 0, 0, _NUMBER
    yield _AT_LEAST, 0, 1, _X32
    yield _RETURN, 0, 0, _FAIL | errno.EPERM


def _not_made(name: str, code: int) -> Iterator[_Step]:
    """Yield steps that answer the call with `code` without making it."""
    found = number(name)
    if found is not None:
        yield _EQUAL, 0, 1, found
        yield _RETURN, 0, 0, _FAIL | code


def _checked_clone() -> Iterator[_Step]:
    yield _EQUAL, 0, 4, number("clone") or 0
    yield _LOAD, 0, 0, _FIRST
    yield _ANY_BIT, 0, 1, _NEW_USER
    yield _RETURN, 0, 0, _FAIL | errno.EPERM
    yield _RETURN, 0, 0, _ALLOW


def _checked_socket(with_datagrams: bool) -> Iterator[_Step]:
    kinds = [_STREAM, _DATAGRAM] if with_datagrams else [_STREAM]
    rules = [
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 0, 1, _UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 1, _NETLINK),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 2, 0, _INET),
        (_EQUAL, 1, 0, _INET6),
        (_RETURN, 0, 0, _FAIL | errno.EAFNOSUPPORT),
        (_LOAD, 0, 0, _SECOND),
        (_AND, 0, 0, _KIND),
        *(step for kind in kinds for step in ((_EQUAL, 0, 1, kind), (_RETURN, 0, 0, _ALLOW))),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
    ]
    yield _EQUAL, 0, len(rules), number("socket") or 0
    yield from rules


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("number", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.POINTER(_Instruction)))


def _install(steps: list[_Step]) -> bool:
    listed = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    program = _Program(len(steps), listed)
    try:
        prctl(_SECCOMP, _FILTER, ctypes.byref(program))
    except OSError:
        return False
    return True
