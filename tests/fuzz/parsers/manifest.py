"""`sgl-tune.json` beside rank files, as listed, verified and cleaned up after."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from random import Random

from sgl_tune.cache.manifest import Manifest
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, command
from tests.sgl_tune.cache.caches import cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.running import ROOT

_GOOD = good()
_SEEDS = (
    *(path.read_bytes() for path in sorted((ROOT / "cache-examples/cache").rglob("sgl-tune.json"))),
    Manifest(
        environment=TARGET,
        key_parts=("m", "torch.bfloat16", "None"),
        deployment={"name": "m", "parallel": {"tp": 2}},
        sglang="0.5.23",
        driver="580.1",
        seconds=12.5,
        notes="n",
        tool="sgl-tune 0.1.0",
        created="2026-11-20T10:00:00+00:00",
        files=dict.fromkeys(rank_names(2), sha256(_GOOD).hexdigest()),
        measured={"key": {"best_ms": 0.02, "default_ms": 0.1, "runner_up": None, "launches": 120}},
        races={"key": {'["R", 1]': 0.0, '["R", -1]': 0.01}},
        routings={"seed": 20, "skews": [0.0, 0.5]},
    ).to_bytes(),
)
_COMMANDS = (
    ("inspect",),
    ("inspect", "--format", "json"),
    ("inspect", "--entries"),
    ("inspect", "--filter", "sglang=0.5.23"),
    ("verify", "--format", "json"),
    ("verify",),
    ("prune", "--dry-run", "--stale", "--older-than", "1d"),
)


def _make(random: Random) -> tuple[bytes, int]:
    raw = mutated(_SEEDS, random, of_json, of_json, of_json, duplicated_key, of_bytes)
    return raw, random.randrange(len(_COMMANDS))


def _read(made: tuple[bytes, int], folder: Path) -> None:
    cache = cache_folder(folder / "cache")
    write_ranks(cache, rank_names(2), _GOOD)
    (cache / "sgl-tune.json").write_bytes(made[0])
    command(*_COMMANDS[made[1]], "cache")


PARSER = Parser(_make, _read)
