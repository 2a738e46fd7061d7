"""Random server commands, mostly plausible ones, from a seed, spelled as their release spells them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.draws import PLAIN, RULES, Draw
from tests.oracle.published import published


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
    names = [name for name in published() if "EAGLE3" not in name]
    chance.shuffle(names)
    return [_command(chance, i, names[i % len(names)], releases, gpus) for i in range(count)]


def _command(
    chance: random.Random, id: int, model: str, releases: Sequence[str], gpus: Sequence[str]
) -> Command:
    draw = Draw(chance, chance.choice(releases), chance.choice(gpus), model, [])
    draw.words = ["--model-path", published()[model].path, "--trust-remote-code"]
    for rule in PLAIN if draw.maybe(3 / 8) else RULES:
        rule(draw)
    return Command(id, draw.release, draw.gpu, model, tuple(draw.words))
