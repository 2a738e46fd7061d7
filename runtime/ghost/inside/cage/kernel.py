"""System calls that Python's standard library does not have."""

import ctypes
import os
import platform

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        **{"socket": 41, "clone": 56, "clone3": 435, "setpgid": 109, "setsid": 112},
        **{"ptrace": 101, "syslog": 103, "vhangup": 153, "pivot_root": 155, "adjtimex": 159, "chroot": 161},
        **{"acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168},
        **{"reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173},
        **{
            "init_module": 175,
            "delete_module": 176,
            "quotactl": 179,
            "clock_settime": 227,
            "kexec_load": 246,
        },
        **{"add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298},
        **{"open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310},
        **{"process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321},
        **{"userfaultfd": 323},
    },
    "aarch64": {
        **{"socket": 198, "clone": 220, "clone3": 435, "setpgid": 154, "setsid": 157},
        **{"umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "vhangup": 58, "quotactl": 60},
        **{"acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106},
        **{"clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161},
        **{"setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218},
        **{"keyctl": 219, "swapon": 224, "swapoff": 225, "perf_event_open": 241, "open_by_handle_at": 265},
        **{"clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271},
        **{"kcmp": 272, "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294},
    },
}
# The same number on every processor.
COMMON = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428},
    **{
        "move_mount": 429,
        "fsopen": 430,
        "fsconfig": 431,
        "fsmount": 432,
        "fspick": 433,
        "mount_setattr": 442,
    },
    **{"landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446},
}


def number(name: str) -> int | None:
    """Return the number of a system call on this processor."""
    return COMMON.get(name) or NUMBERS.get(platform.machine(), {}).get(name)


def call(name: str, *arguments: object) -> int:
    """Make a system call that the C library need not know; raise OSError if it fails."""
    found = number(name)
    if found is None:
        raise OSError(38, f"{name} is not known on {platform.machine()}")
    return _checked(_libc.syscall(ctypes.c_long(found), *map(_word, arguments)), name)


def libc(name: str, *arguments: object) -> int:
    return _checked(getattr(_libc, name)(*map(_word, arguments)), name)


def prctl(option: int, value: int = 0, pointer: object = 0) -> int:
    return libc("prctl", option, value, pointer, 0, 0)


def _word(argument: object) -> object:
    """Widen numbers to a register: a 32-bit variadic argument has garbage in its upper half."""
    return ctypes.c_ulong(argument & (2**64 - 1)) if isinstance(argument, int) else argument


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
