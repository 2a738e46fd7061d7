"""Start a server ourselves: its output is passed on, and its lines are timed as they arrive."""

import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import IO, BinaryIO

from sgl_tune.errors import UsageError
from sgl_tune.log_lines import line_parser
from sgl_tune.processes.scratch import scratch
from sgl_tune.server_log.reader import Reader
from sgl_tune.start_report.compilers import Compilers, Turn, folders_of, fresh_files, written_since
from sgl_tune.start_report.report import StartReport, Watched, report_of

PATIENCE_SECONDS = 30.0  # seconds for a server that was asked to end
_LONGEST_LINE = 1 << 16
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_STAGES = (".source", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin")
_STORES = ("triton", "inductor")  # Inductor keeps Triton's in its own store
_MOST_KERNELS = 5_000


def run_server(
    words: Sequence[str],
    ready: re.Pattern[str] | None,
    stop_when_ready: bool,
    tell: Callable[[StartReport], None],
) -> tuple[int, StartReport]:
    """Return the exit code as a shell shows it, and the report. `tell`: gets the report once, when the
    server is ready or has ended before."""
    command, environment = _parsed(words)
    with scratch() as place, _Server(command, place.marked(environment), ready) as server:
        place.watch(server.pid)
        with _forwarding(server.pid):
            for _ in server.until_ready():
                pass
            report = server.report()
            tell(report)
            if stop_when_ready:
                server.stop()
            server.until_it_ends()
        return server.code, report


def start_and_stop(
    command: list[str], environment: dict[str, str], silence: float, tick: Callable[[str], None]
) -> StartReport:
    """Start a server until it is ready, without its output. `silence`: the seconds without output and
    without a running compiler after which it is stopped; the report then shows where."""
    with scratch() as place, Path(os.devnull).open("wb") as nothing:
        outputs = (nothing, nothing)
        with _Server(command, place.marked(environment), None, outputs) as server:
            place.watch(server.pid)
            for _ in server.until_ready():
                tick(server.doing)
                if time.monotonic() - server.moved_at > silence:
                    break
            report = server.report()
            server.stop()
        return report


class _Server:
    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        ready: re.Pattern[str] | None,
        outputs: tuple[BinaryIO | IO[bytes], BinaryIO | IO[bytes]] | None = None,
    ) -> None:
        self._moved_at = time.monotonic()
        self._environment, self._reader = environment, Reader(ready)
        self._command = shlex.join(command)
        self._parse = line_parser()
        self._began = time.time()
        self._reader.launch(self._began)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # its whole group gets signals
            )
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}", "name a command") from None
        self._compilers = Compilers(self._process.pid)
        self._selector = selectors.DefaultSelector()
        self._rest: dict[int, bytes] = {}
        ours = outputs or (sys.stdout.buffer, sys.stderr.buffer)
        for pipe, sink in zip((self._process.stdout, self._process.stderr), ours, strict=True):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, sink)

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()
        self._compilers.close()
        self._selector.close()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def moved_at(self) -> float:
        """Return when the server last printed something, or when one of its compilers last ran."""
        return time.monotonic() if self._compilers.at_work else self._moved_at

    @property
    def doing(self) -> str:
        compiling = " and ".join(self._compilers.at_work)
        return f"compiling {compiling}" if compiling else self._reader.starts[-1].capturing

    @property
    def code(self) -> int:
        code = self._process.returncode
        return 128 - code if code < 0 else code

    def until_ready(self) -> Iterator[None]:
        while not self._reader.is_ready and not self._has_ended():
            self._turn()
            yield

    def report(self) -> StartReport:
        start = self._reader.starts[-1]
        start.ended = max(start.ended, time.time())
        code = self.code if self._process.returncode is not None else None
        # Triton's own turns first: a ptxas process does not show that it works for Triton.
        turns = (*kernel_turns(self._began, self._environment), *self._compilers.turns)
        written = written_since(self._began, self._environment)
        return report_of(start, watched=Watched(self._command, code, turns, written))

    def stop(self) -> None:
        self._signal(signal.SIGTERM)
        limit = time.monotonic() + PATIENCE_SECONDS
        while not self._has_ended() and time.monotonic() < limit:
            self._turn()
        self._kill()

    def until_it_ends(self) -> None:
        while not self._has_ended():
            self._turn()
        self._kill()
        self._turn()
        self._process.wait()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None and not self._selector.select(0)

    def _turn(self) -> None:
        for key, _ in self._selector.select(0.2):
            assert not isinstance(key.fileobj, int)
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                self._selector.unregister(key.fileobj)
                continue
            key.data.write(chunk)
            key.data.flush()
            self._hear(key.fd, chunk)
        if not self._selector.get_map():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)

    def _hear(self, pipe: int, chunk: bytes) -> None:
        self._moved_at = time.monotonic()
        now = time.time()
        *lines, rest = (self._rest.get(pipe, b"") + chunk).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        self._rest[pipe] = rest
        for line in lines:
            self._reader.hear(self._parse(line.decode("utf-8", "replace")), now)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _kill(self) -> None:
        """Kill the server's group. The janitor of the scratch folder then ends processes that left the
        group."""
        self._signal(signal.SIGKILL)
        self._process.wait()


def _parsed(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment: settings stand first, as in a shell. A single word with
    blanks is split as a shell line."""
    environment, rest = dict(os.environ), list(words)
    while rest and (setting := _SETTING.fullmatch(rest[0])) and len(rest) > 1:
        environment[setting[1]] = setting[2]
        rest.pop(0)
    if not rest:
        way = "sgl-tune start-report -- python -m sglang.launch_server ..."
        raise UsageError("no command stands after --", way)
    if len(rest) == 1 and re.search(r"\s", rest[0]):
        return ["/bin/sh", "-c", rest[0]], environment
    return rest, environment


@contextmanager
def _forwarding(group: int) -> Iterator[None]:
    """Pass signals to this process on to the server's whole group, and let the server decide what to do."""

    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(group, number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def kernel_turns(moment: float, environment: Mapping[str, str]) -> list[Turn]:
    """Return turns of Triton's compiler, from a kernel's first stage to its last. Its work before the
    first stage is not visible."""
    folders = {folder for store in _STORES for folder in folders_of(store, environment)}
    kernels: dict[str, tuple[float, float]] = {}
    for place, name, status in chain.from_iterable(fresh_files(folder, moment) for folder in folders):
        if name.endswith(_STAGES) and (place in kernels or len(kernels) < _MOST_KERNELS):
            begin, end = kernels.get(place, (status.st_mtime, status.st_mtime))
            kernels[place] = min(begin, status.st_mtime), max(end, status.st_mtime)
    return [Turn("Triton", "", begin, end) for begin, end in kernels.values() if begin < end]
