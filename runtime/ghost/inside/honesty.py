"""Reports what makes a record inexact: each finding once, with the phase and the server's own frame."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType

from runtime.ghost.inside import exceptions, library
from runtime.ghost.inside.stream import say

FOUND = {
    library.STUB: ("stub", "this function of a CUDA library is a stub that only answers success"),
    library.UNREAD: ("unread", "bytes were read back that no kernel computed"),
    library.GUESS: ("attribute", "this attribute of the GPU is a guess"),
    library.CAPPED: ("capped", "a copy was cut short"),
    library.EXPORT: ("stub", "this was asked for and is not there"),
}
UNKNOWN = "stub", "the library reported an unknown finding"
OURS = Path(__file__).parents[2]
OTHER, INSIDE = "", "-"  # a file of another package, and a file of runtime/ghost/inside
SERVERS = ("sglang", "flashinfer", "sgl_kernel", "deep_gemm", "vllm")

_phase = ""
_set_aside = 0
said: set[tuple[str, str, str]] = set()
_sources: dict[str, str] = {}


def phase(name: str) -> None:
    """Set the phase of the start, whose name findings carry."""
    global _phase
    _phase = name


def current() -> str:
    """Return the current phase."""
    return _phase


def listen(lib: library.Library) -> None:
    """Report the library's findings from now on."""
    lib.listen(_heard)


def inexact(kind: str, name: str, why: str, size: int = 0) -> None:
    """Report a finding once per kind, name and place, unless it is known to be harmless."""
    if exceptions.is_harmless(kind, name):
        return
    where = frame()
    found = (kind, name, where)
    if found in said:
        return
    said.add(found)
    say("inexact", kind=kind, name=name, phase=_phase, frame=where, bytes=size, why=why)


def needed(error: BaseException) -> str | None:
    """Return the missing function, by its caller or by its caller's file, whose answer led to this error."""
    exact = followed(error, "module")
    if exact or not isinstance(error, (TypeError, AttributeError)) or "NoneType" not in str(error):
        return exact
    asked = ((*_without_line(where), name) for kind, name, where in sorted(said) if kind == "module")
    files = {place: name for place, _, name in asked if place.startswith("flashinfer")}
    return next((files[place] for place, _ in reversed(calls(error)) if place in files), None)


def followed(error: BaseException, kind: str) -> str | None:
    """Return a finding of this kind in a function that this error passed through, the innermost."""
    found = {_without_line(where): name for one, name, where in sorted(said) if one == kind}
    return next((found[call] for call in reversed(calls(error)) if call in found), None)


def calls(error: BaseException) -> list[tuple[str, str]]:
    """Return the file and the function of each call that the error passed through, the innermost last."""
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    return [(_short(code.co_filename) or Path(code.co_filename).name, code.co_name) for code in codes]


def _without_line(where: str) -> tuple[str, str]:
    place, _, function = where.rpartition(" ")
    return place.rpartition(":")[0], function


@contextmanager
def set_aside() -> Iterator[None]:
    """Ignore copies to the host inside, which are only put back later, so that they decide nothing."""
    global _set_aside
    _set_aside += 1
    try:
        yield
    finally:
        _set_aside -= 1


def _heard(kind: int, name: str, at: int, size: int) -> None:
    if kind == library.UNREAD and _set_aside:
        return
    found, why = FOUND.get(kind, UNKNOWN)
    inexact(found, name, why, size)


def frame() -> str:
    """Return the innermost call in a package of the server, as file:line function; else the program's own."""
    here: FrameType | None = sys._getframe(1)
    other = None
    while here is not None:
        path = here.f_code.co_filename
        short = _sources.get(path)
        if short is None:
            short = _sources[path] = _short(path)
        if short != OTHER and short != INSIDE:
            return f"{short}:{here.f_lineno} {here.f_code.co_name}"
        if other is None and short == OTHER:
            other = here
        here = here.f_back
    return f"{Path(other.f_code.co_filename).name}:{other.f_lineno} {other.f_code.co_name}" if other else ""


def _short(path: str) -> str:
    """Return the path below site-packages, if it is in a package of the server."""
    file = Path(path)
    if OURS in file.parents or path.startswith("<"):
        return INSIDE
    for at in range(len(file.parts) - 2, 0, -1):
        package = Path(*file.parts[: at + 1])
        if package.name in SERVERS and (package / "__init__.py").exists():
            return file.relative_to(package.parent).as_posix()
    return OTHER
