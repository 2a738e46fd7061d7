"""Build FlashInfer's modules in parallel, each with its own ninja, as a start would. Compiled objects
stay: ninja continues from there, and compiles an incomplete object again. Each module is built under
FlashInfer's own lock, so that a server that starts meanwhile waits for it."""

import fcntl
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sgl_tune.cli.out import Output
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.descendants import below
from sgl_tune.processes.pump import CHUNK, Pump
from sgl_tune.processes.scratch import Scratch

State = Literal["built", "there", "offered", "refused", "failed"]
_STEP = re.compile(rb"^\[(\d+)/(\d+)\]", re.MULTILINE)
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
_TAIL = 200


@dataclass(frozen=True, slots=True)
class Task:
    """A module whose folder contains its build.ninja."""

    name: str
    folder: Path
    lock: Path
    sources: int


@dataclass(frozen=True, slots=True)
class Built:
    """A module's result. `steps`: how many ninja ran now. `why`: why it is not built."""

    name: str
    state: State
    seconds: float = 0.0
    steps: int = 0
    why: str | None = None


def build(
    tasks: Sequence[Task], jobs: int, environment: Mapping[str, str], scratch: Scratch, out: Output
) -> list[Built]:
    """Build all modules, even if one fails."""
    with closing(_Yard(tasks, jobs, environment, scratch, out)) as yard:
        return yard.run()


def shares(sources: Sequence[int], jobs: int) -> list[int]:
    """Return how many of the compilers each module gets: by its size, and at least one."""
    total = sum(sources) or 1
    return [max(1, jobs * one // total) for one in sources]


@dataclass
class _Ninja:
    task: Task
    process: subprocess.Popen[bytes]
    lock: int
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    steps: int = 0
    said: deque[bytes] = field(default_factory=lambda: deque(maxlen=_TAIL))
    is_over: bool = False

    def hear(self) -> None:
        assert self.process.stdout is not None
        chunk = os.read(self.process.stdout.fileno(), CHUNK)
        self.is_over = not chunk
        for match in _STEP.finditer(chunk):
            self.done, self.steps = int(match[1]), int(match[2])
        self.said.extend(chunk.splitlines())

    def result(self) -> Built:
        code, took = self.process.wait(), time.monotonic() - self.began
        if code == 0:
            state: State = "built" if self.steps else "there"
            return Built(self.task.name, state, took if self.steps else 0.0, self.steps)
        return Built(self.task.name, "failed", took, self.done, cause(self.said))


class _Yard:
    def __init__(
        self, tasks: Sequence[Task], jobs: int, environment: Mapping[str, str], scratch: Scratch, out: Output
    ) -> None:
        self._environment, self._scratch, self._out, self._jobs = environment, scratch, out, jobs
        longest_first = sorted(tasks, key=lambda task: -task.sources)
        given = shares([task.sources for task in longest_first], jobs)
        self._waiting = deque(zip(longest_first, given, strict=True))
        self._running: list[tuple[_Ninja, int]] = []
        self._pump = Pump()
        self._names = {task.name for task in tasks}

    def run(self) -> list[Built]:
        found: list[Built] = []
        with self._out.progress("compiling", len(self._names)) as progress:
            while self._waiting or self._running:
                self._start_some()
                self._pump.turn(_POLL_SECONDS)
                for ninja, jobs in [one for one in self._running if one[0].is_over]:
                    self._running.remove((ninja, jobs))
                    self._leave(ninja)
                    found.append(ninja.result())
                    self._tell(found[-1])
                    progress.advance(1)
                progress.advance(0, self._at_work())
        return found

    def _start_some(self) -> None:
        busy = sum(jobs for _, jobs in self._running)
        for _ in range(len(self._waiting)):
            task, jobs = self._waiting.popleft()
            started = None
            if not busy or busy + jobs <= self._jobs:
                started = _start(task, jobs, self._environment)
            if started is None:
                self._waiting.append((task, jobs))
                continue
            busy += jobs
            self._running.append((started, jobs))
            self._scratch.watch(started.process.pid)
            self._pump.add(started.process.stdout, started.hear)

    def _leave(self, ninja: _Ninja) -> None:
        self._pump.remove(ninja.process.stdout)
        ninja.process.wait()
        assert ninja.process.stdout is not None
        ninja.process.stdout.close()
        os.close(ninja.lock)
        self._scratch.forget(ninja.process.pid)

    def _tell(self, one: Built) -> None:
        if one.state == "built":
            self._out.note(f"{one.name}: {one.seconds:.0f} s")
        elif one.state == "failed":
            self._out.warn(f"{one.name} was not built: {one.why}")

    def _at_work(self) -> str:
        names = [f"{one.task.name} {one.done}/{one.steps or '?'}" for one, _ in self._running]
        waits = f"; {len(self._waiting)} wait" if self._waiting else ""
        return ", ".join(names) + waits

    def close(self) -> None:
        """Ask every ninja to end, which ends its compilers; they lead groups of their own."""
        for ninja, _ in self._running:
            _signal(ninja.process.pid, signal.SIGINT)
        limit = time.monotonic() + _PATIENCE_SECONDS
        for ninja, _ in self._running:
            left = below(ninja.process.pid)
            with suppress(subprocess.TimeoutExpired):
                ninja.process.wait(max(0.0, limit - time.monotonic()))
            for pid in (*left, ninja.process.pid):
                _signal(pid, signal.SIGKILL)
            self._leave(ninja)
        self._running.clear()
        self._pump.close()


def _start(task: Task, jobs: int, environment: Mapping[str, str]) -> _Ninja | None:
    """Start ninja, or return None if another process builds this module now."""
    lock = _locked(task.lock)
    if lock is None:
        return None
    words = ["ninja", "-v", "-C", str(task.folder), "-f", str(task.folder / "build.ninja"), "-j", str(jobs)]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=task.folder,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        os.close(lock)
        raise WorkFailed(f"ninja cannot be started: {error.strerror}", "pip install ninja") from None
    return _Ninja(task, process, lock)


def _locked(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


_ERROR = re.compile(r"\b(fatal error|error|undefined reference|cannot find|Killed|No space left)\b")


def cause(said: Iterable[bytes]) -> str:
    """Return the first line that names an error, except command lines, which may contain the word too."""
    lines = [line.decode(errors="replace").strip() for line in said]
    told = [line for line in lines if line and not line.startswith("[") and len(line) < 2000]
    return next(filter(_ERROR.search, told), told[-1] if told else "ninja said nothing")[:400]
