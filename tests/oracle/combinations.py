"""Random commands that a release's own checks may refuse: a plain one, and one combination of a few flags.

python -m tests.oracle.combinations --seed 3 --count 200 --releases 0.5.17,0.5.23
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runtime.server.flags import flags_of
from runtime.server.releases import RELEASES
from tests.oracle.ask import ask
from tests.oracle.commands import Command
from tests.oracle.compare import page, tally
from tests.oracle.draws import Draw, tensor_parallel
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.ours import our_answer
from tests.oracle.published import published, target_models
from tests.oracle.record import COMBINATIONS, add, read, write
from tests.oracle.wheels import WORK

# What checks look at together: a flag, and what it may be set to.
GROUPS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text())


def combinations(seed: int, count: int, releases: Sequence[str], gpus: Sequence[str]) -> list[Command]:
    """Every group and model in turn; of a group up to four flags, now and then one of another."""
    chance = random.Random(f"combinations {seed}")
    names, groups = target_models(), list(GROUPS)
    chance.shuffle(names)
    return [
        _command(chance, i, names[i % len(names)], groups[i % len(groups)], releases, gpus)
        for i in range(count)
    ]


def _command(
    chance: random.Random, id: int, model: str, group: str, releases: Sequence[str], gpus: Sequence[str]
) -> Command:
    draw = Draw(chance, chance.choice(releases), chance.choice(gpus), model, [])
    draw.words = ["--model-path", published()[model].path, "--trust-remote-code"]
    tensor_parallel(draw)
    known = flags_of(draw.release).by_name
    possible = _possible(group, known)
    chosen = chance.sample(possible, min(len(possible), chance.choice((1, 2, 2, 2, 3, 3, 4))))
    if chance.random() < 0.1:
        chosen += chance.sample(_possible(chance.choice(list(GROUPS)), known), 1)
    for flag, values in dict(chosen).items():
        _add(draw, known, flag, chance.choice(values.split("|")) if values else None)
    return Command(id, draw.release, draw.gpu, model, tuple(draw.words))


def _possible(group: str, known: Any) -> list[tuple[str, str]]:
    pairs = [(flag, values) for flag, _, values in (one.partition(" ") for one in GROUPS[group])]
    return [pair for pair in pairs if pair[0] in known]


def _add(draw: Draw, known: Any, flag: str, value: str | None) -> None:
    """No value that the release's grammar refuses: that is tests.oracle.grammar's."""
    if value is None:
        draw.words.append(flag)
    elif known[flag].choices is None or value in known[flag].choices:
        draw.words += [flag, *(value.split() if known[flag].nargs else [value])]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--releases", default=",".join(row.version for row in RELEASES))
    options.add_argument("--gpus", default=",".join(USUAL_GPUS))
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument("--record", type=Path, help="keep SGLang's answers in this file")
    options.add_argument("--add", action="store_true", help="keep these releases' answers for the tests")
    options.add_argument("--replay", type=Path, help="compare with the answers in this file, and ask nobody")
    asked = options.parse_args()
    if asked.replay is not None:
        pairs = read(asked.replay)
    else:
        commands = combinations(asked.seed, asked.count, asked.releases.split(","), asked.gpus.split(","))
        pairs = list(ask(commands, asked.work.absolute(), asked.jobs))
    if asked.record is not None:
        write(asked.record, pairs)
    if asked.add:
        add(pairs, COMBINATIONS)
    print(*page(tally((one, our_answer(one), theirs) for one, theirs in pairs)), sep="\n")


if __name__ == "__main__":
    main()
