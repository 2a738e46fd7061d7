"""The starts on several GPUs that the ghost predicted before they ran. The judge does not repeat them.
The table of memory outside torch is fitted to them, too."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runtime.toml import tomllib

HERE = Path(__file__).resolve().parent
ROUNDS = ("sixth", "eighth")


class Predicted(NamedTuple):
    """`outside`: the bytes outside torch at the end of each phase."""

    name: str
    model: str
    gpus: int
    flags: tuple[str, ...]
    outside: dict[str, int]


def predicted() -> Iterator[Predicted]:
    asked = tomllib.loads((HERE / "starts.toml").read_text())
    for of_round in ROUNDS:
        file = HERE.parent / "results" / f"ghost_measured_{of_round}.json"
        commands = asked[of_round]["2"]
        for result in json.loads(file.read_text())["starts"]:
            if result["name"] in commands:
                model, *flags = shlex.split(commands[result["name"]])
                outside = {phase: read["outside_torch"] for phase, read in result["driver"].items()}
                given = (*shlex.split(asked["common"]), *flags)
                yield Predicted(f"{of_round}/{result['name']}", model, 2, given, outside)
