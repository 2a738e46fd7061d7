"""Run the pip of a new server as a process that ends with this one and inherits its lock."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.processes.command import safe_environment
from sgl_tune.servers.home import RELEASE, release_order

_SCRIPT = Path(__file__).with_name("with_pip.py")
_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON")  # we choose where to install
_COMMON = ("--no-input", "--disable-pip-version-check")
AGAIN = "run the same command again: it goes on where it stopped"
_MOST_SHOWN = 3
_NO_RELEASE = re.compile(r"satisfies the requirement sglang==(\S+) \(from versions: (.*?)\)")
_NEAREST = 5


class NoRelease(UsageError):
    """The package index does not have this release of SGLang."""


class Pip:
    """A server's pip. `log`: the file for pip's output. `lock`: a descriptor that its processes inherit."""

    def __init__(self, python: Path, log: Path, lock: int) -> None:
        self._python, self._log, self._lock = python, log, lock

    def run(self, *arguments: str, **told: Any) -> None:
        """Run one pip command. `told`: `release` and `report`, if the command chooses a release's
        packages."""
        for _ in self.work("pip", {"arguments": [arguments[0], *_COMMON, *arguments[1:]], **told}):
            pass

    def work(self, name: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the lines that one task of with_pip.py prints. WorkFailed says why it failed."""
        with self._log.open("a+", errors="replace") as log:
            since = log.tell()
            process = subprocess.Popen(
                [self._python, "-I", _SCRIPT, str(os.getpid()), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=_environment(),
                pass_fds=[self._lock],
                text=True,
                errors="replace",
            )
            try:
                yield from _lines(process, request)
            except _Failed as failed:
                log.seek(since)
                errors = [line.strip() for line in log if line.startswith("ERROR:")]
                said = " ".join(line.removeprefix("ERROR:").strip() for line in errors[-_MOST_SHOWN:])
                if unknown := _NO_RELEASE.search(said):
                    raise no_release(unknown[1], unknown[2].split(", ")) from None
                rest = f"{AGAIN}; {self._log} has the rest"
                raise WorkFailed(f"pip: {said or failed}", rest) from None
            finally:
                process.kill()
                process.wait()


def no_release(asked: str, offered: list[str]) -> NoRelease:
    known = sorted(filter(RELEASE.fullmatch, offered), key=release_order)
    older = sum(release_order(one) < release_order(asked) for one in known)
    first = max(0, min(older - _NEAREST // 2, len(known) - _NEAREST))
    near = ", ".join(known[first : first + _NEAREST])
    told = f"SGLang {asked} is no release that pip can install with this Python"
    return NoRelease(told, f"the nearest are {near}" if near else "pip's index has no release of SGLang")


class _Failed(Exception):
    """The last message of a failed process."""


def _lines(process: subprocess.Popen[str], request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    assert process.stdin and process.stdout
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(request))
    with process.stdout as stdout:
        for line in stdout:
            told = json.loads(line)
            if "error" in told:
                raise _Failed(told["error"])
            yield told
    if process.wait():
        raise _Failed(f"ended with {process.returncode}")


def make_venv(folder: Path, log: Path, lock: int) -> None:
    """Create a venv of the running Python, with pip in it."""
    python = Path(sys.executable).resolve()  # in 3.10, a venv made by a venv links to it, and it may go
    done = subprocess.run(
        [python, "-I", "-m", "venv", "--clear", folder],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        cwd="/",
        env=_environment(),
        pass_fds=[lock],
    )
    if done.returncode:
        log.write_text(done.stdout + done.stderr)
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        why = said[-1].strip() if said else f"ended with {done.returncode}"
        raise WorkFailed(f"python -m venv: {why}", f"{log} has the rest; on Debian: apt install python3-venv")


def _environment() -> dict[str, str]:
    settings = {name: value for name, value in safe_environment().items() if name not in _ELSEWHERE}
    return {**settings, "PIP_PROGRESS_BAR": "off"}
