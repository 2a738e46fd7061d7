"""Processes that work for us: send commands to each, read events from all, and see how they ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from sgl_tune.errors import WorkFailed
from sgl_tune.processes.child import ALIVE
from sgl_tune.processes.command import THIS, Python, boot_command, safe_environment
from sgl_tune.processes.pump import CHUNK, Pump
from sgl_tune.processes.scratch import Scratch

Event = dict[str, Any]
_LOG_TAIL = 64 << 10
_POLL_SECONDS = 0.1


class Member:
    """One process. `heard_at`: its last sign of life. `moved_at`: its last event about its work."""

    def __init__(self, number: int, module: str, scratch: Scratch, pump: Pump, python: Python = THIS) -> None:
        self.number = number
        self.code: int | None = None
        self.events: deque[Event] = deque()
        self.heard_at = self.moved_at = time.monotonic()
        self._pump, self._scratch = pump, scratch
        self._log = scratch.folder / f"{module.rpartition('.')[2]}.{number}.log"
        self._rest, self._unsent = b"", bytearray()
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()
        kept = (commands, events, scratch.guard)
        # Temporary files of torch and of compilers are removed with our folder.
        settings = {**safe_environment(), "TMPDIR": str(scratch.folder), **python.variables}
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    boot_command(module, *kept, python=python),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=kept,
                    env=settings,
                    start_new_session=True,  # a terminal's Ctrl-C reaches only us, and groups can be killed
                )
        finally:
            os.close(commands)
            os.close(events)
        scratch.watch(self._process.pid)
        os.set_blocking(self._commands, False)
        os.set_blocking(self._events, False)
        pump.add(self._events, self._read)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def fate(self) -> str:
        assert self.code is not None
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"ended with exit code {self.code}"

    @property
    def last_words(self) -> str | None:
        """Return the last line that the process printed, which may show why it died."""
        lines = self._output().strip().splitlines()
        return f"its last words: {lines[-1]}" if lines else None

    def show_output(self) -> None:
        """Print the process's output, with its traceback, if $SGL_TUNE_TRACEBACK is set."""
        if os.environ.get("SGL_TUNE_TRACEBACK"):
            sys.stderr.write(self._output())

    def send(self, kind: str, **fields: Any) -> None:
        """Send a command without ever waiting, because a process may have stopped reading. What its pipe
        accepts is sent at once, since the pump may run only later."""
        waiting = bool(self._unsent)
        self._unsent += json.dumps({"kind": kind, **fields}).encode() + b"\n"
        if not waiting and self.code is None:
            self._pump.add(self._commands, self._write, writing=True)
            self._write()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._end()

    def _output(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL))
            return log.read().decode(errors="replace")

    def _write(self) -> None:
        if self.code is not None:  # it ended in this turn, and its pipe is closed
            return
        try:
            del self._unsent[: os.write(self._commands, self._unsent)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()
        if not self._unsent:
            self._pump.remove(self._commands)

    def _read(self) -> None:
        chunk = os.read(self._events, CHUNK)
        if not chunk:
            self._end()
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.heard_at = time.monotonic()
        for line in lines:
            event = json.loads(line)
            if event["kind"] != ALIVE:
                self.moved_at = self.heard_at
                self.events.append(event)

    def _end(self) -> None:
        """End the process: its pipe has ended, or it is no longer needed."""
        if self.code is not None:
            return
        for descriptor in (self._commands, self._events):
            self._pump.remove(descriptor)
            os.close(descriptor)
        self.kill()
        self.code = self._process.wait()
        self._scratch.forget(self.pid)


class Crew:
    """Processes of one module that do jobs over pipes."""

    def __init__(self, module: str, count: int, scratch: Scratch, python: Python = THIS) -> None:
        self.pump = Pump()
        self.members: list[Member] = []
        try:
            for number in range(count):
                self.members.append(Member(number, module, scratch, self.pump, python))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def events(self, seconds: float) -> Sequence[tuple[Member, Event]]:
        """Return the events, after waiting for them for at most this many seconds."""
        self.pump.turn(seconds)
        said = []
        for member in self.members:
            while member.events:
                said.append((member, member.events.popleft()))
        return said

    def answer(self, who: str, seconds: float, tick: Callable[[], None]) -> Event:
        """Return the first event of the only process. `who`: its name in an error."""
        (member,), deadline = self.members, time.monotonic() + seconds
        while time.monotonic() < deadline:
            if said := self.events(_POLL_SECONDS):
                return said[0][1]
            if member.code is not None:
                member.show_output()
                raise WorkFailed(f"{who} {member.fate}", member.last_words)
            tick()
        raise WorkFailed(f"{who} did not end within {seconds:.0f} s")

    @property
    def ended(self) -> list[Member]:
        return [member for member in self.members if member.code is not None]

    def close(self) -> None:
        for member in self.members:
            member.kill()
        for member in self.members:
            member.close()
        self.pump.close()
