"""Rank processes that live for a whole test session and run function after function over gloo."""

import faulthandler
import multiprocessing as mp
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from runtime.forward.comm import DistributedCommunicator, connect
from runtime.server.parallel import ParallelConfig

TIMEOUT = 180  # a start on four ranks takes half a minute of a busy machine
MEETING_TIMEOUT = 60
START_TIMEOUT = 300  # four imports of torch, on a machine that others use too
GRACE = 5  # of the others, where one has failed: they wait for it in a collective
ENDED = "its process has ended"


class Ranks:
    """`run` calls function(comm, *args) on every rank of a deployment and returns what each gave back.

    Those that have met stay together for the next of their layout. Where one fails, they meet anew; where
    one gives nothing back, all are replaced: a late answer would be taken for the next one's.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self._count, self._folder, self._runs = count, folder, 0
        self._start()

    def _start(self) -> None:
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(["tests.runtime.generation"])
        self._pipes: list[Connection] = []
        self._processes: list[mp.context.SpawnProcess] = []
        for rank in range(self._count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, theirs, self._stacks(rank)), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        self._are_here = False
        self._met: ParallelConfig | None = None

    def run(self, parallel: ParallelConfig, function: Callable[..., Any], *args: Any) -> list[Any]:
        pipes, met = self._meet(parallel, function, args)
        if len(met) < len(pipes):
            # gloo's own meeting may wait for good, before anything of ours has run: not twice
            self._replace()
            pipes, met = self._meet(parallel, function, args)
        have_met = len(met) == len(pipes) and all(good for good, _ in met.values())
        answers = self._answers(pipes, TIMEOUT) if have_met else met
        failures = [f"rank {rank}:\n{value}" for rank, (good, value) in answers.items() if not good]
        late = [rank for rank in range(len(pipes)) if rank not in answers]
        self._met = None if failures or late else parallel
        failures += [f"rank {rank} gave no answer:\n{self._where(rank)}" for rank in late]
        if late or not have_met or any(not good and value == ENDED for good, value in answers.values()):
            self._replace()
        assert not failures, "\n".join(failures)
        return [answers[rank][1] for rank in range(len(pipes))]

    def _meet(
        self, parallel: ParallelConfig, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[list[Connection], dict[int, tuple[bool, Any]]]:
        """The ranks that are asked, and which of them have met."""
        if not self._are_here:
            assert len(self._answers(self._pipes, START_TIMEOUT)) == self._count, "a rank did not start"
            self._are_here = True
        pipes, meeting = self._pipes[: parallel.world_size], None
        if parallel != self._met:
            self._runs += 1
            meeting = f"file://{self._folder}/run{self._runs}"
        for pipe in pipes:
            pipe.send((parallel, meeting, function, args))
        return pipes, self._answers(pipes, MEETING_TIMEOUT)

    def _answers(self, pipes: list[Connection], seconds: float) -> dict[int, tuple[bool, Any]]:
        """By rank, of those that gave one in time."""
        answers: dict[int, tuple[bool, Any]] = {}
        until = time.monotonic() + seconds
        while len(answers) < len(pipes) and (left := until - time.monotonic()) > 0:
            waiting = [pipe for rank, pipe in enumerate(pipes) if rank not in answers]
            for pipe in wait(waiting, left):
                answers[pipes.index(pipe)] = answer = _received(pipe)
                if not answer[0]:
                    until = min(until, time.monotonic() + GRACE)
        return answers

    def _stacks(self, rank: int) -> Path:
        return self._folder / f"stacks{rank}"

    def _where(self, rank: int) -> str:
        """What each of its threads is at."""
        pid = self._processes[rank].pid
        assert pid is not None
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        return self._stacks(rank).read_text()

    def _replace(self) -> None:
        self.close()
        self._start()

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


def _received(pipe: Connection) -> tuple[bool, Any]:
    try:
        return pipe.recv()
    except EOFError:
        return False, ENDED


def _serve(rank: int, pipe: Connection, stacks: Path) -> None:
    torch.set_num_threads(1)
    faulthandler.register(signal.SIGUSR1, stacks.open("w"))
    pipe.send((True, "here"))
    comm: DistributedCommunicator | None = None
    while True:
        parallel, meeting, function, args = pipe.recv()
        try:
            if comm is None or meeting is not None:
                comm = _joined(comm, parallel, rank, meeting)
            pipe.send((True, "met"))
            pipe.send((True, function(comm, *args)))
        except Exception:
            pipe.send((False, traceback.format_exc()))


def _joined(
    before: DistributedCommunicator | None, parallel: ParallelConfig, rank: int, meeting: str
) -> DistributedCommunicator:
    if before is not None:
        before.close()
    return connect(parallel, rank, meeting, torch.device("cpu"))
