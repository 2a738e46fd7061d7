"""One program of those that draw server commands, ask the wheels, and compare."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.server.releases import RELEASES
from tests.oracle.ask import ask
from tests.oracle.commands import Command
from tests.oracle.compare import page, tally
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.ours import our_answer
from tests.oracle.record import write
from tests.oracle.wheels import WORK

Draws = Callable[[int, int, Sequence[str], Sequence[str]], list[Command]]


def compare_drawn(program: str, about: str, draws: Draws, count: int) -> None:
    """`draws`: of a seed, how many, of which releases and GPUs."""
    options = argparse.ArgumentParser(prog=f"python -m tests.oracle.{program}", description=about)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=count)
    options.add_argument("--releases", default=",".join(row.version for row in RELEASES))
    options.add_argument("--gpus", default=",".join(USUAL_GPUS))
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument("--record", type=Path, help="keep SGLang's answers in this file")
    asked = options.parse_args()
    commands = draws(asked.seed, asked.count, asked.releases.split(","), asked.gpus.split(","))
    pairs = list(ask(commands, asked.work.absolute(), jobs=2))
    if asked.record is not None:
        write(asked.record, pairs)
    print(*page(tally((one, our_answer(one), theirs) for one, theirs in pairs)), sep="\n")
