"""Start one worker a device through torch's elastic launcher, listen, and name the one that failed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.warm.events import DONE, ERROR, START, Tail, events_path

POLL_SECONDS = 0.1

OnEvent = Callable[[int, dict[str, Any]], None]


class Interrupted(WorkFailed):
    """Ctrl-C or a termination signal reached the launcher; the workers are gone."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one node, and where the other nodes meet them."""

    workers: int
    device: str
    gpus: tuple[int, ...] = ()
    nnodes: int = 1
    node_rank: int = 0
    address: str | None = None
    timeout: float = 600.0
    silence: float = 15.0

    def describe(self, worker: int) -> str:
        where = f" (GPU {self.gpus[worker]})" if self.device == "cuda" else ""
        node = f" on node {self.node_rank}" if self.nnodes > 1 else ""
        return f"worker {worker} of {self.workers}{where}{node}"


def launch(module: str, folder: Path, fleet: Fleet, on_event: OnEvent) -> None:
    """Run `python -m module folder` once a worker and come back when all have ended well."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _hush("torch.distributed.elastic")
    endpoint, local = _meeting_point(fleet)
    config = LaunchConfig(
        min_nodes=fleet.nnodes,
        max_nodes=fleet.nnodes,
        nproc_per_node=fleet.workers,
        run_id="sgl-tune",
        rdzv_backend="c10d",
        rdzv_endpoint=endpoint,
        rdzv_configs={"timeout": int(fleet.timeout), "is_host": str(fleet.node_rank == 0).lower()},
        max_restarts=0,
        monitor_interval=POLL_SECONDS,
        local_addr=local,
        logs_specs=DefaultLogsSpecs(log_dir=str(_made(folder / "logs")), redirects=Std.ALL),
    )
    watch = Watch(folder, fleet, on_event)
    try:
        with watch:
            elastic_launch(config, sys.executable)("-m", module, str(folder))
    except ChildFailedError as error:
        raise watch.failure({rank: failure.exitcode for rank, failure in error.failures.items()}) from None
    except SignalException as error:
        raise Interrupted(f"interrupted by {error.sigval.name}: the workers were stopped") from None
    except RendezvousError as error:
        raise WorkFailed(
            f"the nodes did not meet at {endpoint} within {fleet.timeout:.0f} s: {error}",
            "start the same command on every node, with --node-rank 0 on the one that owns --dist-init-addr",
        ) from None


class Watch:
    """Follows every worker's events in a thread; kills a worker that stopped, and remembers why."""

    def __init__(self, folder: Path, fleet: Fleet, on_event: OnEvent) -> None:
        self._fleet, self._folder, self._on_event = fleet, folder, on_event
        self._tails = {w: Tail(events_path(folder, w)) for w in range(fleet.workers)}
        self._pids: dict[int, int] = {}
        self._errors: list[tuple[float, int, dict[str, Any]]] = []
        self._hung: dict[int, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def failure(self, exit_codes: dict[int, int]) -> WorkFailed:
        """The one sentence: a hung worker first, then a killed one, then the first that said why."""
        logs = f"the workers' output is in {self._folder / 'logs'}"
        for worker, reason in self._hung.items():
            return WorkFailed(f"{self._fleet.describe(worker)} {reason} and was stopped", logs)
        first = self._fleet.node_rank * self._fleet.workers
        for rank, code in exit_codes.items():
            if code < 0 and code != -signal.SIGTERM:
                name = signal.Signals(-code).name
                return WorkFailed(f"{self._fleet.describe(rank - first)} was killed by {name}", logs)
        for _, worker, error in sorted(self._errors, key=lambda said: said[0]):
            return WorkFailed(f"{self._fleet.describe(worker)}: {error['message']}", error.get("remedy"))
        rank, code = next(iter(exit_codes.items()))
        return WorkFailed(f"{self._fleet.describe(rank - first)} ended with exit code {code}", logs)

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self._read()
            self._stop_hung()

    def _read(self) -> None:
        for worker, tail in self._tails.items():
            for event in tail.new_events():
                if event["kind"] == START:
                    self._pids[worker] = event["pid"]
                elif event["kind"] == DONE:
                    self._pids.pop(worker, None)
                elif event["kind"] == ERROR:
                    self._errors.append((event["at"], worker, event))
                self._on_event(worker, event)

    def _stop_hung(self) -> None:
        now = time.monotonic()
        for worker, pid in list(self._pids.items()):
            tail = self._tails[worker]
            silent, still = now - tail.heard_at, now - tail.moved_at
            if silent > self._fleet.silence:
                self._hung[worker] = f"gave no sign of life for {silent:.0f} s"
            elif still > self._fleet.timeout:
                self._hung[worker] = f"made no progress for {still:.0f} s (--timeout)"
            else:
                continue
            del self._pids[worker]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _meeting_point(fleet: Fleet) -> tuple[str, str | None]:
    """Where the nodes' launchers find each other, and this node's own address towards it."""
    if fleet.nnodes == 1:
        return "localhost:0", "127.0.0.1"
    if not fleet.address:
        raise UsageError(
            f"--nnodes {fleet.nnodes} needs --dist-init-addr",
            "give every node the same --dist-init-addr HOST:PORT",
        )
    host, _, port = fleet.address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--dist-init-addr {fleet.address!r} is not HOST:PORT")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host.strip("[]"), int(port)))  # a datagram socket: nothing is sent
        except OSError as error:
            raise UsageError(f"--dist-init-addr {fleet.address}: {error.strerror or error}") from None
        return fleet.address, probe.getsockname()[0]


def _hush(package: str) -> None:
    """Each of its loggers has a level of its own; what they would say, `Watch` says in one line."""
    for name in logging.root.manager.loggerDict:
        if name.startswith(package):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
