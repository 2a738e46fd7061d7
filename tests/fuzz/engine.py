"""Hand a parser thousands of inputs in forked workers, each input with a bound on its time and memory.

An input is a function of parser, seed and number alone, so that a finding can be made again.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, NoReturn

from tests.fuzz.parser import Parser, Wrong, build_pages_once, load_parser

MOST_SECONDS = 2.0  # of the processor: the clock would count what other processes take
MOST_WAIT = 5.0  # by the clock, asleep all the while: for a processor anybody may have to wait
MOST_BYTES = 500 << 20
_BATCH = 500  # inputs a worker: what it holds on to is not counted against the next ones
_SLOT = Struct("qdd")


@dataclass(frozen=True)
class Finding:
    """`what` is the same for every input that shows the same fault, `said` is not."""

    number: int
    what: str
    input: str
    said: str = ""


def make_input(name: str, parser: Parser, seed: int, number: int) -> Any:
    return parser.make(Random(f"{name} {seed} {number}"))


def fuzz(
    name: str, count: int, seed: int, workers: int = 2, parser: Parser | None = None
) -> Iterator[Finding]:
    """In the order in which they are found. `parser`: one that is in no module."""
    parser = parser or load_parser(name)
    batches = [range(at, min(at + _BATCH, count)) for at in range(0, count, _BATCH)]
    running: list[_Worker] = []
    try:
        while batches or running:
            while batches and len(running) < workers:
                running.append(_Worker(name, parser, seed, batches.pop(0)))
            for worker in list(running):
                yield from worker.findings()
                if worker.is_over():
                    running.remove(worker)
                    if worker.rest:
                        batches.insert(0, worker.rest)
            time.sleep(0.01)
    finally:
        for worker in running:
            worker.kill()


class _Worker:
    """One forked process, and what its parent sees of it: the slot where it notes what it is at."""

    def __init__(self, name: str, parser: Parser, seed: int, numbers: range) -> None:
        self._name, self._parser, self._seed, self._numbers = name, parser, seed, numbers
        self.rest = range(0)
        self._slot = mmap(-1, _SLOT.size)
        self._folder = Path(tempfile.mkdtemp(prefix="sgl-tune-fuzz-"))
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        sys.stdout.flush()
        self._said = b""
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            _work(name, parser, seed, numbers, self._slot, self._folder, write)  # never comes back
        os.close(write)
        self._killed, self._asleep_since = "", 0.0
        self._status: int | None = None

    def findings(self) -> Iterator[Finding]:
        """What it has said, and what its end says."""
        self._watch()
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        try:
            while chunk := os.read(self._read, 1 << 16):
                self._said += chunk
        except BlockingIOError:
            pass
        *whole, self._said = self._said.split(b"\n")
        for line in whole:
            yield Finding(**json.loads(line))
        if ended:
            self._status = status
            yield from self._last_words(status)
            os.close(self._read)
            shutil.rmtree(self._folder, ignore_errors=True)

    def is_over(self) -> bool:
        return self._status is not None

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self) -> None:
        """Ends it when its input takes too long."""
        written = _SLOT.unpack_from(self._slot)
        _, begun, used = written
        if self._killed or not begun:
            return
        state, seconds = _state_of(self._pid)
        if _SLOT.unpack_from(self._slot) != written:
            return  # read while it was written, or of an input that is done
        if state == "R":
            self._asleep_since = time.monotonic()
        if seconds - used > MOST_SECONDS:
            self._killed = f"more than {MOST_SECONDS:g} s of the processor"
        elif time.monotonic() - max(begun, self._asleep_since) > MOST_WAIT:
            self._killed = f"waits for more than {MOST_WAIT:g} s"
        if self._killed:
            os.kill(self._pid, signal.SIGKILL)

    def _last_words(self, status: int) -> Iterator[Finding]:
        if status == 0:
            return
        number = _SLOT.unpack_from(self._slot)[0]
        what = self._killed or f"died with status {status}"
        yield Finding(number, what, _shown(make_input(self._name, self._parser, self._seed, number)))
        self.rest = range(number + 1, self._numbers.stop)


def _state_of(pid: int) -> tuple[str, float]:
    """R where it runs or would; and its seconds of the processor."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(
    name: str, parser: Parser, seed: int, numbers: range, slot: mmap, folder: Path, out: int
) -> NoReturn:
    try:
        _isolate(folder)
        build_pages_once()
        _keep_old_from_collector()
        for number in numbers:
            _SLOT.pack_into(slot, 0, number, time.monotonic(), time.process_time())
            made = make_input(name, parser, seed, number)
            if fault := _read_within(parser, made, number, slot, folder):
                what, said = fault
                os.write(out, _line(Finding(number, what, _shown(made), said)))
            if number % 100 == 0:
                gc.collect()
    except BaseException as error:  # of the fuzzer itself
        _SLOT.pack_into(slot, 0, number, 0.0, 0.0)
        os.write(
            out, _line(Finding(number, f"the fuzzer failed at {_place_of(error)}", "", repr(error)[:200]))
        )
    os._exit(0)


def _keep_old_from_collector() -> None:
    """What was here before the first input is no garbage; what an input leaves may be, and the command line
    would hide that too when it ends."""
    gc.freeze()
    gc.freeze = lambda: None


def _line(finding: Finding) -> bytes:
    return json.dumps(vars(finding)).encode() + b"\n"


def _read_within(parser: Parser, made: Any, number: int, slot: mmap, folder: Path) -> tuple[str, str] | None:
    place = Path(tempfile.mkdtemp(dir=folder))
    os.chdir(place)
    _SLOT.pack_into(slot, 0, number, time.monotonic(), time.process_time())
    resource.setrlimit(resource.RLIMIT_AS, (_mapped_bytes() + MOST_BYTES, resource.RLIM_INFINITY))
    fault = _fault(parser, made, place)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _SLOT.pack_into(slot, 0, number, 0.0, 0.0)
    os.chdir(folder)
    shutil.rmtree(place, ignore_errors=True)
    return fault


def _isolate(folder: Path) -> None:
    """No settings of the user's, no GPU, no terminal, and nothing on stdout."""
    for variable in list(os.environ):
        if variable.startswith(("SGL", "HF_", "SLURM", "TORCHELASTIC")):
            del os.environ[variable]
    os.environ |= {"HOME": str(folder / "home"), "PATH": "", "NO_COLOR": "1", "SGL_TUNE_TRACEBACK": "1"}
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _fault(parser: Parser, made: Any, place: Path) -> tuple[str, str] | None:
    try:
        parser.read(made, place)
    except parser.ours:
        return None
    except Wrong as wrong:
        return wrong.what, wrong.said
    except BaseException as error:
        return f"{type(error).__name__} at {_place_of(error)}", str(error)[:200]
    return None


def _place_of(error: BaseException) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/sgl_tune/" in f.filename or "/runtime/" in f.filename] or frames
    return f"{'/'.join(Path(ours[-1].filename).parts[-2:])}:{ours[-1].lineno}" if ours else "?"


def _shown(made: Any, most: int = 400) -> str:
    text = repr(made)
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def distinct(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.what, []).append(finding)
    return found
