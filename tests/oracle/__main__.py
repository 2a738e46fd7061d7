"""Asks SGLang's own wheels what they make of random server commands, and compares our answers with theirs.

python -m tests.oracle --seed 5 --count 500 --releases 0.5.17,0.5.23 --gpus H200,B200 [--record FILE]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from runtime.server.releases import RELEASES
from tests.oracle.ask import ask
from tests.oracle.commands import Command, commands_of_every_architecture, random_commands
from tests.oracle.compare import page, tally
from tests.oracle.grammar import compared
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.ours import our_answer
from tests.oracle.rare import rare_commands
from tests.oracle.record import add, read, write
from tests.oracle.wheels import WORK, architectures_of, wheel_of


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle", description=(__doc__ or "").splitlines()[0]
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--releases", default=",".join(row.version for row in RELEASES))
    options.add_argument("--gpus", default=",".join(USUAL_GPUS))
    options.add_argument(
        "--lines", type=int, default=100, help="command lines a release, for its parser alone"
    )
    options.add_argument("--jobs", type=int, default=2, help="interpreters at a time")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    options.add_argument(
        "--every-architecture", action="store_true", help="ask for each that a rule names, once a GPU"
    )
    options.add_argument("--rare", action="store_true", help="commands of flags that are seldom set")
    options.add_argument("--record", type=Path, help="keep SGLang's answers in this file")
    options.add_argument("--add", action="store_true", help="keep these releases' answers for the tests")
    options.add_argument("--replay", type=Path, help="compare with the answers in this file, and ask nobody")
    asked = options.parse_args()
    if asked.replay is not None:
        pairs = read(asked.replay)
    else:
        for release in asked.releases.split(",") if asked.lines else []:
            compared(release, asked.seed, asked.lines, asked.work.absolute())
        commands = _commands(asked)
        pairs = list(ask(commands, asked.work.absolute(), asked.jobs))
    if asked.record is not None:
        write(asked.record, pairs)
    if asked.add:
        add(pairs)
    print(*page(tally((command, our_answer(command), theirs) for command, theirs in pairs)), sep="\n")


def _commands(asked: argparse.Namespace) -> list[Command]:
    releases, gpus = asked.releases.split(","), asked.gpus.split(",")
    if asked.rare:
        return rare_commands(asked.seed, asked.count, releases, gpus)
    if not asked.every_architecture:
        return random_commands(asked.seed, asked.count, releases, gpus)
    known = {release: architectures_of(wheel_of(release, asked.work.absolute())) for release in releases}
    every = commands_of_every_architecture(releases, gpus)
    return [one for one in every if one.model.rpartition("/")[2] in known[one.release]]


if __name__ == "__main__":
    main()
