"""Under torchrun or srun the processes are there already: each is a worker or stands for one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from runtime.server.bounds import MOST_RANKS
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.units import shown
from sgl_tune.warm.job import Job
from sgl_tune.warm.worker import Search, explained

_FIRST_PORT, _PORTS = 20000, 20000
_SECONDS = 20
_HOW = "start it with srun, or write the nodes' names out, separated by commas"


@dataclass(frozen=True, slots=True)
class Joined:
    """One process of `world_size`. `local_rank` 0 writes and proves for its node."""

    rank: int
    world_size: int
    local_rank: int


@dataclass(frozen=True, slots=True)
class TorchWorker(Joined):
    """torchrun has told torch where the others are; its store and its transport are its own."""

    def run(self, job: Job) -> Mapping[str, Any] | None:
        """Search with the others. The report on the first process of a node."""
        started = time.perf_counter()
        import torch.distributed as dist

        from runtime.autotune.team import Team

        timeout = timedelta(seconds=job.timeout)
        try:
            dist.init_process_group("gloo", timeout=timeout)
            search = Search(job)
            search.prepare(self.local_rank, Team.of_world(timeout), _unheard, started)
            report = search.run()
            dist.destroy_process_group()
        except Exception as error:
            if os.environ.get("SGL_TUNE_TRACEBACK"):
                raise
            reason = explained(error)
            raise WorkFailed(
                f"worker {self.rank} of {self.world_size}: {reason['message']}", reason["remedy"]
            ) from error
        return report if self.local_rank == 0 else None


@dataclass(frozen=True, slots=True)
class SlurmTask(Joined):
    """A task of a step. On one machine they meet under `name`, else at `address`."""

    name: str
    address: str | None = None


def joined(environ: Mapping[str, str] | None = None) -> TorchWorker | SlurmTask | None:
    environ = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in environ and "RANK" in environ:
        return TorchWorker(*_numbers(environ, "RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if _number(environ, "SLURM_STEP_NUM_TASKS", "1") > 1:
        ranks = _numbers(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
        job, step = environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_STEP_ID", "0")
        name = f"sgl-tune {os.getuid()} {job}.{step}"
        alone = _number(environ, "SLURM_STEP_NUM_NODES", "1") == 1
        return SlurmTask(*ranks, name, None if alone else _slurm_address(environ))
    return None


def _unheard(kind: str, **fields: Any) -> None:
    """A launcher of somebody else's listens to no events."""


def _numbers(environ: Mapping[str, str], rank: str, size: str, local: str) -> tuple[int, int, int]:
    at, world, here = _number(environ, rank), _number(environ, size), _number(environ, local)
    if world > MOST_RANKS or not max(at, here) < world:
        raise UsageError(f"{rank} {at} and {local} {here} in the environment are no ranks of {size} {world}")
    return at, world, here


def _number(environ: Mapping[str, str], name: str, default: str = "") -> int:
    text = environ.get(name, default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name} is {shown(text)} in the environment: a launcher sets it to a number")
    return int(text)


def _slurm_address(environ: Mapping[str, str]) -> str:
    nodes = environ.get("SLURM_STEP_NODELIST", "")
    if "[" in nodes:
        nodes = _expanded(nodes)
    first = nodes.replace("\n", ",").split(",")[0].strip()
    if not first:
        raise UsageError("SLURM_STEP_NODELIST in the environment names no node", _HOW)
    port = _FIRST_PORT + _number(environ, "SLURM_JOB_ID", "0") % _PORTS
    return f"{first}:{port}"


def _expanded(nodes: str) -> str:
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or "it does not answer"
        raise UsageError(f"scontrol cannot say which nodes {shown(nodes)} are: {why}", _HOW) from None
    return answer.stdout
