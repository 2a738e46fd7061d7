"""What `mem-report --constants` reads and --calibrate wrote."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from sgl_tune.errors import UsageError
from sgl_tune.memory.calibration import read_constants
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser

_CONSTANT = {"name": "context", "bytes": 1 << 29, "source": "measured", "times": 1}
_SEEDS = (json.dumps({"gpu": "H200", "constants": [_CONSTANT, {**_CONSTANT, "name": "kernels"}]}).encode(),)


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_json, of_json, of_json, duplicated_key, of_bytes)


def _read(raw: bytes, folder: Path) -> None:
    (folder / "constants.json").write_bytes(raw)
    read_constants(folder / "constants.json", "sm90")


PARSER = Parser(_make, _read, ours=(UsageError,))
