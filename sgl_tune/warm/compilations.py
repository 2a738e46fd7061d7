"""Count what is compiled while a proof runs forwards. If the kernel of a chosen tactic is missing, a
server's first request has to wait for it. FlashInfer's builds are seen where it starts ninja, and count if
a file of the module changed, since it runs ninja only to look, too. Triton reports its compilations. Any
other compiler is looked for ten times a second."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgl_tune.start_report.compilers import NAMES, Compilers

_TELL_NOT_WHOSE = frozenset(("ninja", "as", "ld", "collect2"))  # shared by compilers; ninja may only look
_FLASHINFER, _TRITON = "FlashInfer JIT", "Triton"


@dataclass
class Compilations:
    """Compilations by compiler. `triton`: kernels of this runtime; a server uses its own instead."""

    flashinfer: dict[str, None] = field(default_factory=dict)
    triton: dict[str, None] = field(default_factory=dict)
    others: dict[str, None] = field(default_factory=dict)

    @property
    def of_a_server(self) -> list[str]:
        """Return what a server would have to compile too."""
        return [*(f"{_FLASHINFER} {name}" for name in self.flashinfer), *self.others]


@contextmanager
def counted(watches: bool = True) -> Iterator[Compilations]:
    """Count compilations in this process. `watches`: also look for other compilers, which costs CPU time."""
    seen = Compilations()
    with _flashinfer(seen), _triton(seen):
        if not watches:
            yield seen
            return
        watch = Compilers(os.getpid(), NAMES - _TELL_NOT_WHOSE)
        try:
            yield seen
        finally:
            watch.close()
    for turn in watch.turns:
        if turn.phase == _FLASHINFER and (turn.what in seen.flashinfer or not turn.what):
            continue
        if turn.phase == _FLASHINFER:
            seen.flashinfer[turn.what] = None
        elif turn.phase != _TRITON:
            seen.others[turn.phase] = None


@contextmanager
def _flashinfer(seen: Compilations) -> Iterator[None]:
    core = sys.modules.get("flashinfer.jit.core")
    own: Callable[..., Any] | None = getattr(core, "run_ninja", None)
    if own is None:
        yield
        return

    def heard(workdir: Path, *more: Any, **named: Any) -> Any:
        before = _newest(workdir)
        try:
            return own(workdir, *more, **named)
        finally:
            if _newest(workdir) != before:
                seen.flashinfer[workdir.name] = None

    core.run_ninja = heard  # type: ignore[union-attr]
    try:
        yield
    finally:
        core.run_ninja = own  # type: ignore[union-attr]


def _newest(folder: Path) -> int:
    """Return the newest time of ninja's outputs in a folder, or 0 if it has none."""
    made = [one for one in folder.glob("*") if one.suffix in (".o", ".so")]
    return max((one.stat().st_mtime_ns for one in made), default=0)


@contextmanager
def _triton(seen: Compilations) -> Iterator[None]:
    """Count Triton's compilations. Its listener is also called for cache hits, which do not count."""
    knobs = getattr(getattr(sys.modules.get("triton"), "knobs", None), "compilation", None)
    if knobs is None or not hasattr(knobs, "listener"):
        yield
        return
    own = knobs.listener

    def heard(*, src: Any, cache_hit: bool, **more: Any) -> None:
        if not cache_hit:
            seen.triton[str(getattr(src, "name", "a kernel"))] = None
        if own is not None:
            own(src=src, cache_hit=cache_hit, **more)

    knobs.listener = heard
    try:
        yield
    finally:
        knobs.listener = own
