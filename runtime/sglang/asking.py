"""Asks one server about one kind of GPU. A process is kept for each number of devices."""

from __future__ import annotations

import shutil
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from runtime.baking.baking import Baking
from runtime.ghost.gpus import Gpu
from runtime.record.events import Event
from runtime.record.record import Record
from runtime.sglang.server_process import Request, ServerProcess, ghost_for


@dataclass(frozen=True)
class Asked:
    """A server (its Python and its folders of packages), a kind of GPU, and a cache for what is built.
    `baking`: its starts compile for real."""

    python: Path
    folders: tuple[Path, ...]
    gpu: Gpu
    cache: Path
    total_bytes: int | None = None
    halves: Mapping[str, str] | None = None
    remote_code: bool = False
    baking: Baking | None = None


class Asker:
    """Starts servers on the ghost. It owns a work folder, which is removed when it closes."""

    def __init__(self, asked: Asked, environment: Mapping[str, str] | None = None) -> None:
        self._asked, self._environment = asked, dict(environment or {})
        self._work = Path(tempfile.mkdtemp(prefix="sgl-tune-ghost-"))
        self._servers: dict[int, ServerProcess] = {}
        self._questions = 0
        self.snapshot: Path | None = None  # torch's history of the last start, as the server wrote it

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            server.__exit__(kind, error, trace)
        shutil.rmtree(self._work, ignore_errors=True)

    def ask(
        self, request: Request, say: Callable[[Event], object] | None = None, seconds: float = 600
    ) -> Record:
        """Return one start's record. If the resolved arguments need more GPUs, start again with them."""
        self._questions += 1
        request = replace(request, name=f"start{self._questions}")
        devices = devices_of(request.argv)
        record = self._run(devices, request, say, seconds)
        resolved = _devices(record)
        if resolved and resolved != devices:
            return self._run(resolved, replace(request, name=request.name + "-again"), say, seconds)
        return record

    def _run(
        self, devices: int, request: Request, say: Callable[[Event], object] | None, seconds: float
    ) -> Record:
        server = self._server(devices)
        self.snapshot = server.snapshot(request) if request.snapshot else None
        return server.run(request, say, seconds)

    def _server(self, devices: int) -> ServerProcess:
        if devices not in self._servers:
            asked = self._asked
            ghost = ghost_for(asked.folders, asked.cache, asked.gpu, devices, asked.total_bytes, asked.halves)
            work = self._work / f"on-{devices}"
            server = ServerProcess(
                asked.python,
                work,
                ghost,
                self._environment,
                remote_code=asked.remote_code,
                bytecode=asked.cache / "bytecode" / sha256(repr(asked.folders).encode()).hexdigest()[:16],
                kernels=asked.cache / "kernels",
                baking=asked.baking,
            )
            self._servers[devices] = server.__enter__()
        return self._servers[devices]


def _devices(record: Record) -> int:
    """Return the GPUs of one node as SGLang itself resolved them; 0 if the start did not get that far."""
    sizes = [record.arguments.get(name) for name in ("tp_size", "pp_size", "nnodes")]
    tp, pp, nodes = (size if isinstance(size, int) else 0 for size in sizes)
    return max(1, tp * pp // nodes) if tp and pp and nodes else 0


class _Quiet(ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Raise instead of exiting: SGLang's own parser will refuse the same words with a message."""
        raise ValueError(message)


def devices_of(argv: Sequence[str]) -> int:
    """Return the GPUs of one node by the flags; one if they cannot be read, as SGLang refuses them."""
    parser = _Quiet(add_help=False, allow_abbrev=False)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", dest="tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "--pp-size", "--pp", dest="pp", type=int, default=1)
    parser.add_argument("--nnodes", type=int, default=1)
    try:
        known, _ = parser.parse_known_args(list(argv))
    except ValueError:
        return 1
    tp, pp, nodes = (max(1, size) for size in (known.tp, known.pp, known.nnodes))
    return max(1, tp * pp // nodes)
