"""A private folder that is gone in every ending: a process of its own waits to remove it after us."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from shutil import rmtree

from sgl_tune.processes.command import safe_environment

_JANITOR = Path(__file__).resolve().with_name("janitor.py")
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Scratch:
    """`guard` is the janitor's pipe: processes that write into the folder hold it too."""

    folder: Path
    guard: int

    def watch(self, group: int) -> None:
        with suppress(BrokenPipeError):
            os.write(self.guard, b"+%d\n" % group)

    def forget(self, group: int) -> None:
        with suppress(BrokenPipeError):
            os.write(self.guard, b"-%d\n" % group)


@contextmanager
def scratch(above: Path | None = None) -> Iterator[Scratch]:
    """`above`: where it is made, if not where temporary files go; it is hidden there."""
    folder = Path(tempfile.gettempdir()) / f"sgl-tune-{token_hex(8)}"
    if above is not None:
        folder = above.absolute() / f".sgl-tune-{token_hex(8)}"
    theirs, ours = os.pipe()
    try:
        # In a session of its own: Ctrl-C on a terminal is not for it.
        janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_JANITOR), str(folder)],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=safe_environment(),
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    try:
        folder.mkdir(mode=0o700)  # after the janitor's start, so that no moment leaves one behind
        yield Scratch(folder, ours)
    finally:
        rmtree(folder, ignore_errors=True)
        os.close(ours)
        with suppress(subprocess.TimeoutExpired):
            janitor.wait(_PATIENCE_SECONDS)
