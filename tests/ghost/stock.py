"""A stock SGLang of the smallest environment, on GPUs that are not there: imported once, asked often."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.ghost.gpus import gpus
from runtime.ghost.outside import Outside, table
from runtime.record.events import Event
from runtime.record.record import Record
from runtime.sglang.server_process import Ghost, Request, ServerProcess, ghost_for
from tests.ghost.c_running import BUILT
from tests.ghost.environments import SMALLEST, python_of

GPU = gpus()["h100"]  # frozen commands are for eight of them


@dataclass(frozen=True)
class Smallest:
    python: Path
    packages: Path

    def ghost(self, devices: int = 1) -> Ghost:
        return ghost_for([self.packages], BUILT, GPU, devices)


@dataclass
class Stock:
    """The process that imported it, on a machine of eight GPUs. Each question is a start of its own."""

    installed: Smallest
    process: ServerProcess
    work: Path
    starts: int = 0

    def ask(
        self,
        argv: Sequence[str],
        *,
        numbers: Outside | None = None,
        say: Callable[[Event], object] | None = None,
        **more: Any,
    ) -> Record:
        self.starts += 1
        outside = {"numbers": (numbers or table()).text()}
        request = Request(tuple(argv), outside=outside, name=f"start{self.starts}", **more)
        return self.process.run(request, say, seconds=300)


def smallest() -> Smallest:
    python = python_of(SMALLEST)
    return Smallest(python, next(python.parents[1].glob("lib/python3*/site-packages")))


@contextmanager
def opened(installed: Smallest, work: Path) -> Iterator[Stock]:
    with ServerProcess(installed.python, work, installed.ghost(devices=8), {}) as process:
        yield Stock(installed, process, work)
