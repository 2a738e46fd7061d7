"""A private folder that is always removed, however this process ends: a separate process removes it."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from sgl_tune.errors import WorkFailed
from sgl_tune.locks import take_lock
from sgl_tune.processes.command import safe_environment
from sgl_tune.processes.janitor import empty, identity, remove

_JANITOR = Path(__file__).resolve().with_name("janitor.py")
_PATIENCE_SECONDS = 5.0
_MARK = "STARTED_BY_SGL_TUNE_IN"  # SGLang warns about variables that begin with SGL_


@dataclass(frozen=True, slots=True)
class Scratch:
    """A private folder. `guard`: the janitor's pipe, which processes that write into the folder hold too.
    `descriptor`: the opened folder, even if its name is changed."""

    folder: Path
    guard: int
    descriptor: int

    def watch(self, group: int) -> None:
        with suppress(BrokenPipeError):
            os.write(self.guard, b"+%d\n" % group)

    def marked(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for a process whose descendants may leave its group and must end with us."""
        with suppress(BrokenPipeError):
            os.write(self.guard, f"*{_MARK}={self.folder.name}\n".encode())
        return {**environment, _MARK: self.folder.name}

    def forget(self, group: int) -> None:
        with suppress(BrokenPipeError):
            os.write(self.guard, b"-%d\n" % group)


@contextmanager
def scratch(above: Path | None = None) -> Iterator[Scratch]:
    """Yield a private folder. `above`: a parent other than the temporary folder; it is hidden there."""
    folder = Path(tempfile.gettempdir()) / f"sgl-tune-{token_hex(8)}"
    if above is not None:
        folder = above.absolute() / f".sgl-tune-{token_hex(8)}"
    theirs, ours = os.pipe()
    try:
        # In a session of its own, which a terminal's Ctrl-C does not reach.
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
        folder.mkdir(mode=0o700)  # after the janitor's start, so that a kill leaves no folder
        with _held(folder) as descriptor:
            os.write(ours, f"={identity(descriptor)}\n".encode())
            try:
                yield Scratch(folder, ours, descriptor)
            finally:
                empty(descriptor)
                remove(str(folder), identity(descriptor))
    finally:
        os.close(ours)
        with suppress(subprocess.TimeoutExpired):
            janitor.wait(_PATIENCE_SECONDS)


@contextmanager
def _held(folder: Path) -> Iterator[int]:
    """Yield the opened folder if it is the one just made. The owner of the folder above could replace it
    by another, whose content would be used and removed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if not is_ours or os.listdir(descriptor):  # noqa: PTH208 a descriptor is no path
            raise WorkFailed(f"{folder}: somebody put another folder in its place", "see who writes there")
        with suppress(OSError):  # a prune removes folders without a holder
            take_lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)
