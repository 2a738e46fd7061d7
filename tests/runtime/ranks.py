"""Rank processes that live for a whole test module and run function after function over gloo."""

from __future__ import annotations

import multiprocessing as mp
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from runtime.forward.comm import DistributedCommunicator, connect
from runtime.server.config import ParallelConfig

TIMEOUT = 60


class Ranks:
    """`run` calls function(comm, *args) on every rank of a deployment and returns what each gave back."""

    def __init__(self, count: int, folder: Path) -> None:
        context = mp.get_context("spawn")
        self._folder, self._runs = folder, 0
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, parallel: ParallelConfig, function: Callable[..., Any], *args: Any) -> list[Any]:
        self._runs += 1
        meeting = f"file://{self._folder}/run{self._runs}"
        pipes = self._pipes[: parallel.world_size]
        for pipe in pipes:
            pipe.send((parallel, meeting, function, args))
        answers = [self._answer(rank, pipe) for rank, pipe in enumerate(pipes)]
        failures = [f"rank {rank}:\n{value}" for rank, (good, value) in enumerate(answers) if not good]
        assert not failures, "\n".join(failures)
        return [value for _, value in answers]

    def _answer(self, rank: int, pipe: Connection) -> tuple[bool, Any]:
        if not pipe.poll(TIMEOUT):
            raise TimeoutError(f"rank {rank} gave no answer in {TIMEOUT} s")
        return pipe.recv()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


@contextmanager
def started(count: int) -> Iterator[Ranks]:
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(count, Path(folder))
        try:
            yield ranks
        finally:
            ranks.close()


def _serve(rank: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        parallel, meeting, function, args = pipe.recv()
        try:
            comm: DistributedCommunicator = connect(parallel, rank, meeting, torch.device("cpu"))
            try:
                pipe.send((True, function(comm, *args)))
            finally:
                comm.close()
        except Exception:
            pipe.send((False, traceback.format_exc()))
