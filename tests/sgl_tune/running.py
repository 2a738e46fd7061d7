"""Run the command line as its users do: as a process, in a pipe or on a terminal of some width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from sgl_tune.cli.app import main

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "sgl_tune.cli.app"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """Without what a user's own settings would change."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SGL", "FORCE_", "NO_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **changes}


def run(*arguments: object, cwd: Path | None = None, **changes: str) -> Ran:
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
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
    command = [*PROGRAM, *map(str, arguments)]
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=environment(**changes)
    )
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
    return Ran(child.wait(60), seen.decode().replace("\r\n", "\n"), "")
