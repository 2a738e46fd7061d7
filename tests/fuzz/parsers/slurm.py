"""What torchrun and srun put into the environment of the processes they start."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sgl_tune.errors import SglTuneError
from sgl_tune.warm.foreign_launcher import joined
from tests.fuzz import nasty
from tests.fuzz.parser import Parser

_SEEDS = (
    {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
    {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_NODELIST": "node[1-2]",
        "SLURM_JOB_ID": "4711",
    },
)


def _make(random: Random) -> dict[str, str]:
    environment = dict(random.choice(_SEEDS))
    for _ in range(random.choice((1, 1, 2, 3))):
        name = random.choice(list(environment) or ["RANK"])
        if random.random() < 0.25:
            environment.pop(name, None)
        else:
            environment[name] = random.choice(nasty.WORDS)
    return environment


def _read(environment: dict[str, str], folder: Path) -> None:
    joined(environment)


PARSER = Parser(_make, _read, ours=(SglTuneError,))
