"""What is compiled while a proof forwards: the kernel of a persisted tactic that is not there would make a
server's first request wait.

FlashInfer's builds are heard where it starts ninja, and count when a file of the module changed, since it
runs ninja to look, too. Triton tells what it compiled. Any other compiler is seen at work, ten times a
second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgl_tune.start_report.compilers import NAMES, Compilers

_TELL_NOT_WHOSE = frozenset(("ninja", "as", "ld", "collect2"))  # and ninja may only look
_FLASHINFER, _TRITON = "FlashInfer JIT", "Triton"


@dataclass
class Compilations:
    """`triton` are kernels of this runtime, which a server has its own in place of."""

    flashinfer: dict[str, None] = field(default_factory=dict)
    triton: dict[str, None] = field(default_factory=dict)
    others: dict[str, None] = field(default_factory=dict)

    @property
    def of_a_server(self) -> list[str]:
        """What a server would have to compile as well."""
        return [*(f"{_FLASHINFER} {name}" for name in self.flashinfer), *self.others]


@contextmanager
def counted(watches: bool = True) -> Iterator[Compilations]:
    """Around a forward, in the process that runs it; to watch costs a busy CPU some of its time."""
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
    """Of what ninja makes there; 0 where nothing is."""
    made = [one for one in folder.glob("*") if one.suffix in (".o", ".so")]
    return max((one.stat().st_mtime_ns for one in made), default=0)


@contextmanager
def _triton(seen: Compilations) -> Iterator[None]:
    """Its listener is told of hits as well."""
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
