"""The env file of `verify --target`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, command
from tests.sgl_tune.cache.caches import cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.running import ROOT

_SEEDS = (
    (ROOT / "cache-examples/h200.env.json").read_bytes(),
    json.dumps(TARGET).encode(),
    json.dumps({"metadata": TARGET, "arch": "sm90", "driver": "580.1", "gpus": []}).encode(),
)
_GOOD = good()


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_json, of_json, of_json, duplicated_key, of_bytes)


def _read(raw: bytes, folder: Path) -> None:
    (folder / "env.json").write_bytes(raw)
    write_ranks(cache_folder(folder / "cache"), rank_names(2), _GOOD)
    command("verify", "--target", "env.json", "cache", "--format", ("human", "json", "quiet")[len(raw) % 3])


PARSER = Parser(_make, _read)
