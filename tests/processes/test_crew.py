"""Commands to processes that nobody listens to yet: a prover imports while the workers search."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from sgl_tune.processes.crew import Crew, Member
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.events import IMPORT
from sgl_tune.warm.proof import HERE, Prover
from tests.warm.processes import until

_PATIENCE_SECONDS = 60
_LONG = "x" * (1 << 20)  # more than a pipe takes


@contextmanager
def _crew() -> Iterator[tuple[Crew, Member]]:
    with scratch() as private, Crew(HERE.prover, 1, private) as crew:
        yield crew, crew.members[0]


@pytest.mark.skipif(find_spec("torch") is None, reason="a prover imports torch")
def test_a_prover_imports_before_anything_is_asked_of_it() -> None:
    with scratch() as private:
        prover = Prover(private, "cpu", HERE)
        try:
            (member,) = prover._crew.members
            loaded = Path(f"/proc/{member.pid}/maps")
            until(lambda: "libtorch_cpu.so" in loaded.read_text(), _PATIENCE_SECONDS)
        finally:
            prover.close()


def test_a_process_that_reads_nothing_does_not_stop_us() -> None:
    with _crew() as (crew, member):
        os.kill(member.pid, signal.SIGSTOP)
        for _ in range(3):
            member.send(IMPORT, device="cpu", text=_LONG)
        assert member._unsent, "the pipe took all: nothing was tried here"
        os.kill(member.pid, signal.SIGCONT)
        until(lambda: [crew.events(0.05), not member._unsent][1], _PATIENCE_SECONDS)


def test_a_process_that_was_killed_is_sent_nothing() -> None:
    with _crew() as (crew, member):
        member.kill()
        member.send(IMPORT, device="cpu", text=_LONG)
        until(lambda: crew.events(0.05) or crew.ended, _PATIENCE_SECONDS)
        assert member.code == -signal.SIGKILL
        member.send(IMPORT, device="cpu")
