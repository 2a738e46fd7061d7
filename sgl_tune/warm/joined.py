"""Under torchrun or srun the processes are there already: each becomes one worker, and nothing is spawned."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.warm.events import ERROR, Tail, events_path

_FIRST_PORT, _PORTS = 20000, 20000


@dataclass(frozen=True, slots=True)
class JoinedWorker:
    rank: int
    world_size: int
    local_rank: int
    address: str | None = None  # torchrun has told torch already

    def run(self, folder: Path, dist_init_addr: str | None) -> bool:
        """Search with the others. True on the first process of a node: it writes and proves."""
        from sgl_tune.warm.worker import main

        os.environ.update(self._environment(dist_init_addr))
        if main(folder):
            said = Tail(events_path(folder, self.local_rank)).new_events()
            reason = next(event for event in said if event["kind"] == ERROR)
            raise WorkFailed(
                f"worker {self.rank} of {self.world_size}: {reason['message']}", reason["remedy"]
            )
        return self.local_rank == 0

    def _environment(self, dist_init_addr: str | None) -> dict[str, str]:
        ranks = {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
        }
        if self.address is None and dist_init_addr is None:
            return ranks
        host, _, port = (dist_init_addr or self.address or "").rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"--dist-init-addr {dist_init_addr!r} is not HOST:PORT")
        return {**ranks, "MASTER_ADDR": host, "MASTER_PORT": port}


def joined_worker(environ: Mapping[str, str] | None = None) -> JoinedWorker | None:
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ and "RANK" in environ:
        return JoinedWorker(*_numbers(environ, "RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if int(environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        ranks = _numbers(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
        return JoinedWorker(*ranks, _slurm_address(environ))
    return None


def _numbers(environ: Mapping[str, str], rank: str, size: str, local: str) -> tuple[int, int, int]:
    return int(environ[rank]), int(environ[size]), int(environ[local])


def _slurm_address(environ: Mapping[str, str]) -> str:
    nodes = environ["SLURM_STEP_NODELIST"]
    if "[" in nodes:
        answer = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True)
        nodes = answer.stdout.strip().replace("\n", ",")
    port = _FIRST_PORT + int(environ.get("SLURM_JOB_ID", "0")) % _PORTS
    return f"{nodes.split(',')[0]}:{port}"
