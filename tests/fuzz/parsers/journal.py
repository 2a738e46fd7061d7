"""The journal of a write that was cut short: whatever it says, nothing outside its folder changes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from sgl_tune.cache.layouts import JOURNAL
from tests.fuzz import nasty
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, Wrong, command
from tests.sgl_tune.cache.caches import cache_folder, good

_TEMPORARY = ".sgl-tune-1-0123abcd.tmp"
_RANK = "rank_tp0_pp0_dp0.json"
_GOOD = good()
_SEEN = [f"{len(_GOOD)} {sha256(_GOOD).hexdigest()}", None]


def _plan(replace: dict[str, str], remove: list[str]) -> dict[str, Any]:
    return {"replace": replace, "remove": remove, "seen": dict.fromkeys([*replace, *remove], _SEEN)}


_PLANS: tuple[Any, ...] = (
    _plan({_RANK: _TEMPORARY}, ["rank_tp1_pp0_dp0.json"]),
    _plan({"../../outside": _TEMPORARY}, ["../outside", "/outside"]),
    _plan({"sub": _TEMPORARY}, ["sub", ".sgl-tune.lock", ".", ""]),
    _plan({_RANK: "../../.sgl-tune-1-0123abcd.tmp"}, []),
    {"replace": {_RANK: _TEMPORARY}, "remove": []},
)
_SEEDS = tuple(json.dumps(plan).encode() for plan in _PLANS)


def _make(random: Random) -> bytes:
    raw = mutated(_SEEDS, random, of_json, of_json, duplicated_key, of_bytes)
    name = json.dumps(random.choice([s for s in nasty.SCALARS if isinstance(s, str)]))
    return raw.replace(b'"sub"', name.encode()) if random.random() < 0.5 else raw


def _read(raw: bytes, folder: Path) -> None:
    outside = folder / "cache" / "outside"
    cache = cache_folder(folder / "cache")
    (cache / "sub").mkdir()
    for path in (outside, cache.parent / "outside", cache / _RANK, cache / "rank_tp1_pp0_dp0.json"):
        path.write_bytes(_GOOD)
    (cache / _TEMPORARY).write_bytes(_GOOD)
    (cache / JOURNAL).write_bytes(raw)
    command("prune", "--older-than", "900d", "-y", "cache")
    if any(path.read_bytes() != _GOOD for path in (outside, cache.parent / "outside")):
        raise Wrong("a file outside its folder changed")
    if (cache / JOURNAL).is_file() and not (cache / JOURNAL).is_symlink():
        raise Wrong("the journal is still there, and will stop the next one too")


PARSER = Parser(_make, _read)
