"""Random server commands, mostly plausible ones, from a seed, spelled as their release spells them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from tests.oracle.draws import PLAIN, RULES, Draw
from tests.oracle.published import MADE_UP, published, target_models

EVERY_ARCHITECTURE_WITH = ((), ("--speculative-algorithm", "EAGLE"), ("--language-only",))


@dataclass(frozen=True)
class Command:
    id: int
    release: str
    gpu: str
    model: str
    argv: tuple[str, ...]


def random_commands(seed: int, count: int, releases: Sequence[str], gpus: Sequence[str]) -> list[Command]:
    """Every model in turn; three in eight with little more than --tp."""
    chance = random.Random(f"commands {seed}")
    names = target_models()
    chance.shuffle(names)
    return [_command(chance, i, names[i % len(names)], releases, gpus) for i in range(count)]


def commands_of_every_architecture(releases: Sequence[str], gpus: Sequence[str]) -> list[Command]:
    """The same small checkpoint under each name that a rule knows."""
    names = [name for name in published() if name.startswith(MADE_UP)]
    found = []
    for release, gpu, flags, name in product(releases, gpus, EVERY_ARCHITECTURE_WITH, names):
        argv = ("--model-path", published()[name].path, "--trust-remote-code", *flags)
        found.append(Command(len(found), release, gpu, name, argv))
    return found


def _command(
    chance: random.Random, id: int, model: str, releases: Sequence[str], gpus: Sequence[str]
) -> Command:
    draw = Draw(chance, chance.choice(releases), chance.choice(gpus), model, [])
    draw.words = ["--model-path", published()[model].path, "--trust-remote-code"]
    for rule in PLAIN if draw.maybe(3 / 8) else RULES:
        rule(draw)
    return Command(id, draw.release, draw.gpu, model, tuple(draw.words))
