"""A server's own Python with SGLang imported, on the ghost. It runs starts and returns their records."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from runtime.baking.baking import Baking
from runtime.baking.linking import link_driver
from runtime.ghost.build import library
from runtime.ghost.cage import Keeper, kill_group, lacking, most_memory
from runtime.ghost.gpus import Gpu
from runtime.ghost.inside import compilers
from runtime.ghost.trust import is_private
from runtime.record.events import Event, record_of
from runtime.record.parts import Asked
from runtime.record.record import Record
from runtime.sglang.tactics import Tactics

MAIN = Path(__file__).parent / "inside" / "main.py"
LONGEST_LINE = 1 << 26
STOP = object()  # returned by the listener of a start to end the start
STOPPED = "stopped: what was asked was known"


class ServerBroken(RuntimeError):
    """The server's process could not be used; the text has its output."""


@dataclass(frozen=True)
class Ghost:
    """A simulated GPU: its libraries, its row of the table, and the number of GPUs."""

    library: Path
    name: str
    row: str
    devices: int = 1
    total: int | None = None
    halves: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        libraries = sorted(self.library.glob("lib*.so.*"))
        preload = [self.library / "libghost.so", *libraries]
        return {
            "LD_PRELOAD": ":".join(map(str, preload)),
            "LD_LIBRARY_PATH": str(self.library),
            "TRITON_LIBCUDA_PATH": str(self.library),
            "GHOST_ROW": self.row,
            "GHOST_DEVICES": str(self.devices),
            **({"GHOST_TOTAL": str(self.total)} if self.total else {}),
        }


def ghost_for(
    folders: Sequence[Path],
    cache: Path,
    gpu: Gpu,
    devices: int = 1,
    total: int | None = None,
    halves: Mapping[str, str] | None = None,
) -> Ghost:
    """Return a ghost for the server with these package folders; libraries are built in `cache`, once."""
    return Ghost(library(folders, cache), gpu.key, gpu.row(), devices, total, dict(halves or {}))


@dataclass(frozen=True)
class Request:
    """One start: SGLang's flags, the rank to start, and the numbers of memory outside torch.

    `compiled`: patterns of kernels that the start finds in torch.compile's cache, which is empty otherwise.
    """

    argv: tuple[str, ...]
    rank: int = 0
    outside: dict[str, Any] | None = None
    name: str = "start"
    snapshot: bool = False  # have torch write its history of memory
    until: str | None = None  # stop when "arguments" or "gates" are resolved, before a model is built
    compiled: tuple[str, ...] = ()
    title: str | None = None  # the model as typed, if `argv` has another folder in its place
    tactics: Tactics | None = None  # the tactic files that it finds, if any
    fold: bool = False  # run one of several equal layers


class ServerProcess:
    """Imports SGLang when entered; every `run` after that is a start forked from this process."""

    def __init__(
        self,
        python: Path,
        work: Path,
        ghost: Ghost,
        environment: dict[str, str],
        *,
        remote_code: bool = False,
        bytecode: Path | None = None,
        kernels: Path | None = None,
        baking: Baking | None = None,
    ) -> None:
        """`bytecode` and `kernels` are folders that keep compiled Python and Triton's kernels for later
        processes; without them, only this process uses them. A model's own code writes to neither."""
        self._python, self._work, self._ghost = python, work, ghost
        self._environment, self._remote_code = environment, remote_code
        self._bytecode = work / "bytecode" if remote_code or bytecode is None else bytecode
        self._kernels = work / "kernels" if remote_code or kernels is None else kernels
        self._baking, self._linked = baking, work / "linked"
        self._hello: Event = {}
        self._imported: list[Event] = []  # what happened while it imported counts for every start

    def __enter__(self) -> ServerProcess:
        self._work.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._kernels = self._private(self._kernels, self._work / "kernels")
        ours, theirs = os.pipe()
        if baking := self._baking:
            link_driver(self._ghost.library, self._linked)
        given = {
            "stream": theirs,
            "parent": os.getpid(),
            "ghost": str(self._ghost.library / "libghost.so"),
            "small": True,
            "halves": self._ghost.halves,
            "work": str(self._work),
            "kernels": str(self._kernels),
            "writable": [str(self._bytecode), str(self._kernels), *([str(baking.root)] if baking else [])],
            "runnable": baking.runnable if baking else [],
            "bakes": baking is not None,
            "remote_code": self._remote_code,
        }
        with (self._work / "imports.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._python, "-I", *self._options(), MAIN, json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._work,
                env=self._variables(),
                pass_fds=[theirs],
            )
        os.close(theirs)
        self._stream: BinaryIO = os.fdopen(ours, "rb")
        try:
            self._greet()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @staticmethod
    def _private(*folders: Path) -> Path:
        """Return the first folder that no other user can write to; a group may share a cache folder."""
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_private(folder):
                return folder
        raise ServerBroken(f"{folders[-1]} is not used: others may write to it or to a folder above it")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._stream.close()
        if self._process.stdin:
            self._process.stdin.close()

    def _options(self) -> list[str]:
        if any(self._python.parent.parent.glob("lib/python3*/site-packages/sglang/srt/__pycache__/*.pyc")):
            return ["-B"]  # the server's own folders hold it, as an image's do
        self._bytecode.mkdir(mode=0o700, parents=True, exist_ok=True)
        return ["-X", f"pycache_prefix={self._bytecode}"]

    def run(
        self, request: Request, say: Callable[[Event], object] | None = None, seconds: float = 600
    ) -> Record:
        """Run one start, for at most `seconds` of CPU. `say` gets each event; if it returns STOP, end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._line(request)).encode() + b"\n")
        self._process.stdin.flush()
        return record_of(self._asked(request), chain(self._imported, self._events(say, seconds)))

    def _greet(self) -> None:
        while (event := self._next())["event"] != "hello":
            if event["event"] == "broken":
                raise ServerBroken(event["text"])
            self._imported.append(event)
        self._hello = event

    @property
    def lacking(self) -> tuple[str, ...]:
        """The protections that this machine's kernel does not offer."""
        return lacking(self._hello.get("cage", ()))

    def snapshot(self, request: Request) -> Path:
        """Return the file in which the start wrote torch's history, by the server's own code."""
        return self._work / f"{request.name}.pickle"

    def log(self, request: Request) -> Path:
        return self._work / f"{request.name}.log"

    def _events(self, say: Callable[[Event], object] | None, seconds: float) -> Iterator[Event]:
        keeper: Keeper | None = None
        leader = 0
        try:
            while True:
                event = self._next()
                if event["event"] == "began":
                    leader = event["pid"]
                    keeper = Keeper(leader, seconds, most_memory())
                    keeper.start()
                if event["event"] == "ended" and keeper and keeper.why:
                    yield {"event": "broken", "text": keeper.why}
                stops = say is not None and say(event) is STOP
                yield event
                if stops and leader:
                    yield {"event": "broken", "text": STOPPED}
                    kill_group(leader)
                if event["event"] == "ended":
                    return
        finally:
            if keeper:
                keeper.stop()
            if leader:
                kill_group(leader)  # of an interrupted start: what it compiles would go on

    def _next(self) -> Event:
        line = self._stream.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise ServerBroken(self._last_words())
        return dict(json.loads(line))

    def _last_words(self) -> str:
        text = (self._work / "imports.log").read_text(errors="replace").strip()
        return text.splitlines()[-1][:500] if text else "the server's process ended without a word"

    def _line(self, request: Request) -> dict[str, Any]:
        log, folder = self.log(request), self._work / f"{request.name}-tactics"
        log.unlink(missing_ok=True)
        return {
            **vars(request),
            "log": str(log),
            "snapshot": str(self.snapshot(request)) if request.snapshot else None,
            "baking": self._baking.line(self._python.parent, self._linked) if self._baking else None,
            "tactics": request.tactics.laid(folder) if request.tactics is not None else None,
            "ghost": True,
        }

    def _asked(self, request: Request) -> Asked:
        hello = self._hello
        return Asked(
            argv=tuple(request.argv),
            rank=request.rank,
            gpu=self._ghost.name,
            source="ghost",
            python=hello["python"],
            cuda=hello["cuda"] or "",
            versions=hello["versions"],
            lacking=self.lacking,
        )

    def _variables(self) -> dict[str, str]:
        """Return the variables of the server's process: few, and none copied from ours."""
        home = self._work / "home"
        home.mkdir(exist_ok=True)
        return {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "FLASHINFER_WORKSPACE_BASE": str(home),
            "TMPDIR": str(self._work),
            "LANG": "C.UTF-8",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TQDM_DISABLE": "1",
            "SGLANG_HOST_IP": "127.0.0.1",  # the cage has no other
            **self._environment,
            **self._ghost.environment(),
            **compilers.environment("/usr/local/bin:/usr/bin:/bin"),
            **(self._baking.environment(self._linked) if self._baking else {}),
        }
