"""Refuses and names what the cage forbids, by Python's own audit events, before the kernel would refuse it.

The kernel's protections also stop native code. These name the module, the program or the host, and also work
on a kernel without such protections.
"""

import errno
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from runtime.ghost.inside.stream import say

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "", None})
_PICKLED = frozenset({"os", "posix", "nt", "subprocess", "_posixsubprocess", "pty", "runpy", "shutil"})
_EVALUATED = frozenset({"eval", "exec", "compile", "__import__", "open"})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Places:
    """The folders from which Python's code, programs and libraries may come, and those that may be written.

    `closed` folders lie inside a code folder, and may hold no code unless they are code folders themselves.
    """

    code: tuple[str, ...]
    programs: tuple[str, ...]
    writable: tuple[str, ...]
    closed: tuple[str, ...]

    def may_hold_code(self, path: str) -> bool:
        real = os.path.realpath(path)
        best = _longest(self.code, real)
        return bool(best) and len(best) >= len(_longest(self.closed, real))

    def may_hold_programs(self, path: str) -> bool:
        return self.may_hold_code(path) or bool(_longest(self.programs, os.path.realpath(path)))

    def may_be_written(self, path: str) -> bool:
        return bool(_longest(self.writable, os.path.realpath(path)))


def _longest(folders: tuple[str, ...], path: str) -> str:
    return max((one for one in folders if path == one or path.startswith(one + "/")), key=len, default="")


class _Watch:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._named: set[tuple[str, str]] = set()
        self._code: set[str] = set()
        self._written: set[str] = set()
        self._own_host = socket.gethostname()
        self._judges: dict[str, Callable[..., None]] = {
            "socket.connect": self._connect,
            "socket.bind": self._connect,
            "socket.sendto": self._connect,
            "socket.sendmsg": self._connect,
            "socket.getaddrinfo": self._look_up,
            "socket.gethostbyname": self._look_up,
            "open": self._open,
            "os.rename": self._rename,
            "os.link": self._link,
            "os.symlink": self._link,
            **dict.fromkeys(("os.truncate", "os.setxattr", "os.removexattr"), self._change),
            **dict.fromkeys(
                ("os.chmod", "os.chown", "os.utime", "os.mkdir", "os.rmdir", "os.remove"), self._change_below
            ),
            "exec": self._execute,
            "import": self._import,
            "ctypes.dlopen": self._load,
            "subprocess.Popen": self._run,
            "os.exec": self._run,
            "os.posix_spawn": self._run,
            "os.system": self._shell,
            "pickle.find_class": self._unpickle,
        }

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        judge = self._judges.get(event)
        if judge is not None:
            judge(*arguments)

    def _connect(self, _: object, address: object, *__: object) -> None:
        if isinstance(address, tuple) and address:
            host = address[0]
            if not _is_loopback(host, self._own_host):
                self._name("network", f"{host}:{address[1]}" if len(address) > 1 else str(host))
                raise OSError(errno.ENETUNREACH, "sgl-tune lets no start reach a network")
        elif isinstance(address, (str, bytes)) and address:
            path = os.fsdecode(address)
            if path.startswith("/") and not self._places.may_be_written(path):
                self._name("socket", path)
                raise PermissionError(errno.EACCES, "sgl-tune lets no start reach a service", path)

    def _look_up(self, host: object, *_: object) -> None:
        if not _is_loopback(host, self._own_host):
            self._name("network", _text(host))
            raise socket.gaierror(socket.EAI_AGAIN, "sgl-tune lets no start reach a network")

    def _open(self, path: object, _: object, flags: object) -> None:
        if not isinstance(flags, int) or not flags & _WRITES or isinstance(path, int):
            return
        name = _text(path)
        if name in self._written:
            return
        if not name.startswith("/dev/") and not self._places.may_be_written(name):
            self._name("write", name)
            raise PermissionError(errno.EACCES, "sgl-tune lets no start write here", name)
        self._written.add(name)

    def _change(self, path: object, *_: object) -> None:
        self._open(path, None, os.O_WRONLY)

    def _change_below(self, path: object, *rest: object) -> None:
        """Judge a change, unless the last argument is an open folder: then the kernel judges it."""
        if rest[-1] == -1:
            self._change(path)

    def _rename(self, old: object, new: object, old_folder: int, new_folder: int) -> None:
        self._change_below(old, old_folder)
        self._change_below(new, new_folder)

    def _link(self, _: object, new: object, *folders: int) -> None:
        self._change_below(new, folders[-1])

    def _execute(self, code: object) -> None:
        if isinstance(code, CodeType):
            self._check_code(code.co_filename)

    def _check_code(self, path: str) -> None:
        """Refuse code from other places. A name such as <string> is code that other code made."""
        if path in self._code or not path.startswith("/"):
            return
        if not self._places.may_hold_code(path):
            self._name("code", path)
            raise PermissionError(errno.EACCES, "sgl-tune runs no code from here", path)
        self._code.add(path)

    def _import(self, module: str, filename: object, *_: object) -> None:
        if filename:
            self._load(filename)

    def _load(self, library: object) -> None:
        name = _text(library) if library else ""
        if "/" in name and not self._places.may_hold_programs(name):
            self._name("code", name)
            raise PermissionError(errno.EACCES, "sgl-tune loads no library from here", name)

    def _run(self, program: object, *_: object) -> None:
        name = _text(program)
        if "/" in name and not self._places.may_hold_programs(name):
            self._name("program", name)
            raise PermissionError(errno.EACCES, "sgl-tune runs no program from here", name)

    def _shell(self, command: object) -> None:
        self._name("program", _text(command))
        raise PermissionError(errno.EACCES, "sgl-tune lets no start run a shell")

    def _unpickle(self, module: str, name: str) -> None:
        if module.partition(".")[0] in _PICKLED or (module == "builtins" and name in _EVALUATED):
            self._name("code", f"{module}.{name} in a pickle")
            raise PermissionError(errno.EACCES, f"sgl-tune lets no pickle ask for {module}.{name}")

    def _name(self, kind: str, what: str) -> None:
        """Report once what was tried, and by which line."""
        if (kind, what) not in self._named:
            self._named.add((kind, what))
            say("tried", kind=kind, what=what[:500], frame=_frame())


def _is_loopback(host: object, own: str) -> bool:
    name = _text(host) if host is not None else None
    return name in _LOOPBACK or name == own or str(name).startswith("127.")


def _text(value: object) -> str:
    if isinstance(value, (str, bytes, os.PathLike)):
        return os.fsdecode(value)
    return str(value)


def _frame() -> str:
    """Return the innermost line of code that is neither ours nor the standard library's."""
    library = str(Path(os.__file__).parent)
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        is_library = name.startswith((library, "<")) and "site-packages" not in name
        if not is_library and "/runtime/ghost/inside/" not in name:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def watch(places: Places) -> None:
    """Judge each of Python's events from now on, in this process and its forks, for good."""
    sys.addaudithook(_Watch(places))
