"""Run the command line as its users do: as a process, in a pipe or on a terminal of some width."""

import fcntl
import gc
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile

from sgl_tune.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "sgl_tune.cli.app"]
SECONDS = 60


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def ends(self, code: int, *said: str, out: str = "") -> bool:
        """Whether it ended so and said all this on stderr and `out` on stdout."""
        as_said = self.code == code and out in self.out and all(words in self.err for words in said)
        if not as_said:
            print(self.out, self.err, sep="\n")  # pytest shows it with the failure
        return as_said


def environment(**changes: str) -> dict[str, str]:
    """Without what a user's own settings would change."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("SGL", "FORCE_", "NO_"))}
    ours = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "SGL_TUNE_SERVERS": os.devnull}
    return {**kept, **ours, **changes}


def run(*arguments: object, cwd: Path | None = None, **changes: str) -> Ran:
    """In a process of its own that need not import anything: a fork of this one."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err, Path(os.devnull).open() as nothing:
        code = _ended(_forked(arguments, (nothing.fileno(), out.fileno(), err.fileno()), cwd, changes))
        for file in (out, err):
            file.seek(0)
        return Ran(code, out.read(), err.read())


def _forked(
    arguments: Sequence[object], streams: Sequence[int], cwd: Path | None, changes: Mapping[str, str]
) -> int:
    assert not any(name.startswith("PYTHON") for name in changes), "that needs an interpreter of its own"
    settings = environment(**changes)
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        gc.freeze()  # what is here is the test's: to look through it costs more than most commands
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
        os.environ.clear()
        os.environ.update(settings)
        os.chdir(cwd or Path.cwd())
        sys.argv = ["sgl-tune", *map(str, arguments)]
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _ended(child: int) -> int:
    """Its exit code, as subprocess tells it."""
    ending = os.pidfd_open(child)
    try:
        if not select.select([ending], [], [], SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(ending)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_anew(*arguments: object, cwd: Path | None = None, **changes: str) -> Ran:
    """In an interpreter of its own: for what depends on what is imported, when and from where."""
    command, variables = [*PROGRAM, *map(str, arguments)], environment(**changes)
    streams = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, cwd=cwd, env=variables, timeout=SECONDS, **streams)
    return Ran(done.returncode, done.stdout, done.stderr)


def run_here(*arguments: object) -> Ran:
    """In this process: a hundred times as fast, and as whoever runs it."""
    before, out, err = sys.argv, StringIO(), StringIO()
    sys.argv = ["sgl-tune", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main()
    finally:
        sys.argv = before
    return Ran(code, out.getvalue(), err.getvalue())


def run_on_terminal(
    *arguments: object,
    columns: int = 80,
    answer: str = "",
    before_answer: Callable[[], object] | None = None,
    cwd: Path | None = None,
    **changes: str,
) -> Ran:
    """On a real pseudo-terminal; what went to stdout and stderr comes back in one. `before_answer` is what
    somebody else does while the question stands there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = _forked(arguments, (theirs, theirs, theirs), cwd, changes)
    os.close(theirs)
    if answer and not before_answer:
        os.write(ours, answer.encode())
    seen = b""
    while True:
        if before_answer and b"[y/N]" in seen:
            before_answer()
            before_answer = None
            os.write(ours, answer.encode())
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux says EIO when the last process with the terminal has gone
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    return Ran(_ended(child), seen.decode().replace("\r\n", "\n"), "")
