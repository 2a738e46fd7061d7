"""The C interface of the simulated GPU: see runtime/ghost/c. Every address is an integer."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

Say = Callable[[int, str, int, int], None]
# The kinds of findings that the library reports: see `ghost_listen`.
STUB, UNREAD, GUESS, CAPPED, EXPORT = 1, 2, 3, 4, 5
UNREAL, REAL, DOUBTED, HELD = range(4)  # marks of bytes: see ghost.h

_LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


class Library:
    """The library that this process already runs on, by its path."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._library, self._folder = library, Path(path).parent
        self._process = ctypes.CDLL(None)
        self.mark = library.ghost_mark
        self.mark.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.mark.restype = None
        self.marked, self.held = library.ghost_marked, library.ghost_held
        self.marked.argtypes = self.held.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        # Counts the launch of a kernel that does not reach the library: a node, if a stream is captured.
        self.launched = library.ghost_launched
        self.launched.argtypes, self.launched.restype = [], None
        self._kept: list[Any] = []

    def cuda(self) -> str:
        """Return the release of CUDA that this process was started with, such as 13.0."""
        version = ctypes.c_int()
        self.runtime("cudaRuntimeGetVersion")(ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

    def path_of(self, name: str) -> str | None:
        """Return the file that stands for a library of CUDA, by its name without an ending."""
        return next((str(file) for file in sorted(self._folder.glob(f"{name}.so*"))), None)

    def appears(self, what: str, count: int = 0) -> None:
        """Charge the memory outside torch that comes with `what`: see outside.c."""
        device = ctypes.c_int()
        self.runtime("cudaGetDevice")(ctypes.byref(device))
        self._library.ghost_appears(device, what.encode(), count)

    def listen(self, say: Say) -> None:
        """Call `say(kind, name, address, bytes)` for each finding of the library."""

        def heard(kind: int, name: bytes | None, at: int | None, size: int) -> None:
            say(kind, (name or b"").decode(errors="replace"), at or 0, size)

        listener = _LISTENER(heard)
        self._kept.append(listener)
        self._library.ghost_listen(listener)

    def runtime(self, name: str) -> Any:
        """Return a function of the CUDA runtime that this process was started with."""
        return getattr(self._process, name)

    def is_capturing(self, stream: int) -> bool:
        """Whether the work of a stream becomes a graph instead of running."""
        status = ctypes.c_int()
        self.runtime("cudaStreamIsCapturing")(ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value == 1


_library: Library | None = None


def open_library(path: str) -> Library:
    """Load the library once for this process."""
    global _library
    _library = Library(path)
    return _library


def is_open() -> bool:
    """Whether this process runs on a ghost GPU."""
    return _library is not None


def library() -> Library:
    """Return the library of this process, which must run on a ghost."""
    if _library is None:
        raise RuntimeError("this process does not run on a ghost GPU: install() was not called")
    return _library
