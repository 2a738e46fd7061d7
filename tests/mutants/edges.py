"""Random commands that notice wrong changes of the rules which no recorded command notices: SGLang is asked.

python -m tests.mutants.edges --seed 1 --count 300 --pool 6000 --record FILE
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtime.server.flags import flags_of
from runtime.server.releases import RELEASES
from tests.mutants.__main__ import chosen, rules
from tests.mutants.coverage import calls_at_import, measured
from tests.mutants.patch import caches, functions
from tests.mutants.trial import SURVIVES, Mutant, Trials
from tests.mutants.units import RECORDED_COMMANDS, Unit, commands, told
from tests.oracle.ask import ask
from tests.oracle.combinations import combinations
from tests.oracle.commands import Command
from tests.oracle.compare import FIELDS, page, tally
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.ours import our_answer
from tests.oracle.rare import rare_commands
from tests.oracle.record import read, refusals, write
from tests.oracle.wheels import WORK

PATIENCE = 20.0  # CPU seconds a mutant


def pool(seed: int, count: int) -> list[Command]:
    """Of rare flags, of combinations, and what stands beside a recorded command."""
    chance = random.Random(f"edges {seed}")
    releases = [row.version for row in RELEASES]
    drawn = [
        one for kind in (rare_commands, combinations) for one in kind(seed, count // 6, releases, USUAL_GPUS)
    ]
    recorded = [one for path in RECORDED_COMMANDS for one, _ in read(path)] + [one for one, _ in refusals()]
    while len(drawn) < count:
        drawn.append(beside(chance.choice(recorded), chance, releases))
    return [replace(one, id=number) for number, one in enumerate(drawn)]


def beside(command: Command, chance: random.Random, releases: Sequence[str]) -> Command:
    """The same but for one thing: a number moved, a choice taken, a flag dropped, the release, the GPU."""
    words, known = [*command.argv], flags_of(command.release).by_name
    places = [i for i, word in enumerate(words) if word in known and word != "--model-path"]
    at = chance.choice(places) if places else 0
    value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("--") else ""
    kind = chance.choice(("value", "value", "value", "drop", "release", "gpu"))
    if kind == "release":
        near = releases.index(command.release) + chance.choice((-1, 1))
        return replace(command, release=releases[max(0, min(near, len(releases) - 1))])
    if kind == "gpu" or not places:
        return replace(command, gpu=chance.choice(USUAL_GPUS))
    if kind == "drop":
        del words[at : at + (2 if value else 1)]
    elif re.fullmatch(r"-?\d+", value):
        words[at + 1] = str(
            chance.choice((int(value) - 1, int(value) + 1, int(value) * 2, int(value) // 2, -1, 0, 1))
        )
    elif choices := known[words[at]].choices:
        words[at + 1 : at + 2] = [str(chance.choice(choices))]
    return replace(command, argv=tuple(words))


def compared(answer: dict[str, Any]) -> str:
    """What is compared with SGLang's answer."""
    server = answer.get("server")
    if server is None:
        return "refused"
    draft = server["draft"] and (server["draft"]["tunes"], server["draft"]["key"])
    return repr([server[name] for name in FIELDS if name != "draft"] + [draft])


def unit(command: Command) -> Unit:
    right = compared(our_answer(command))
    return Unit(f"{command.id}: {told(command)}", right, lambda: compared(our_answer(command)) == right)


def fates_under(units: Sequence[Unit], mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Of those in files that the commands run."""
    files = {getattr(one, "__file__", None) for one in sys.modules.values()}
    loaded = [path for path in rules() if str(path) in files]
    runs = measured(units, loaded)()
    reached = {file for run in runs.values() for file in run.calls}
    trials = Trials(units, runs, calls_at_import(loaded), PATIENCE)
    yield from trials.fates([one for one in mutants if one.file in reached], jobs)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=300, help="wrong changes")
    options.add_argument("--pool", type=int, default=6000, help="random commands")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument("--record", type=Path, help="keep SGLang's answers in this file")
    asked = options.parse_args()
    drawn = pool(asked.seed, asked.pool)
    recorded, beside_them = [*commands()], [unit(one) for one in drawn]
    mutants, fates = chosen(asked.seed, asked.count), []
    functions(), caches()
    gc.freeze()
    for units in (recorded, beside_them):
        fates = [*fates_under(units, mutants, asked.jobs)]
        mutants = [mutant for mutant, fate in fates if fate == SURVIVES]
        print(f"{len(units)} commands: of {len(fates)} wrong changes {len(mutants)} survive", flush=True)
    print(*mutants, sep="\n")
    telling = {fate for _, fate in fates} & {one.name for one in beside_them}
    found = [command for command, one in zip(drawn, beside_them, strict=True) if one.name in telling]
    print(f"{len(found)} commands to ask", flush=True)
    pairs = [*ask(found, asked.work.absolute(), asked.jobs)]
    if asked.record is not None:
        write(asked.record, pairs)
    print(*page(tally((one, our_answer(one), theirs) for one, theirs in pairs)), sep="\n")


if __name__ == "__main__":
    main()
