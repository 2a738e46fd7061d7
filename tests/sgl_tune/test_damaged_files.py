"""Files that somebody else wrote, damaged at random: every command ends by one of its own exit codes, with a
sentence, within 2 s and 500 MB, and changes nothing outside the cache.
SGL_TUNE_DAMAGED says how many of each are tried."""

import json
import os
import resource
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from sgl_tune.deployment.model_files import presets
from tests.sgl_tune.cache.caches import KEY, cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_key
from tests.sgl_tune.damage import damaged
from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.ship.forge import GOOD
from tests.sgl_tune.start_report.logs import head, loaded, served

COUNT = int(os.environ.get("SGL_TUNE_DAMAGED", "40"))
RANKS = f"cache/flashinfer/autotune/0.7.2/sm90/{KEY}"
STORE = "store/autotune/v2/0123456789abcdef"
SERVER = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")


class Input(NamedTuple):
    """The file that is damaged, and the commands that read it."""

    path: str
    seeds: tuple[bytes, ...]
    commands: tuple[tuple[str, ...], ...]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_ENTRY = {"key": moe_key(16), "runner": "MoERunner", "tactic": [3, [1, 2]], "profiling_policy": HOT}
_NODE = (ROOT / "cache-examples" / "nodes.jsonl").read_bytes().splitlines()[0]
_JOURNAL = {"replace": {"rank_tp0_pp0_dp0.json": ".sgl-tune-1-0123abcd.tmp"}, "remove": ["../../outside"]}
_LIST = (("inspect", "cache", "--format", "json"), ("inspect", "cache", "--entries"), ("verify", "cache"))
INPUTS = {
    "rank file": Input(f"{RANKS}/rank_tp0_pp0_dp0.json", (good(),), (*_LIST, ("diff", "cache", "cache"))),
    "manifest": Input(
        f"{RANKS}/sgl-tune.json",
        tuple(path.read_bytes() for path in sorted((ROOT / "cache-examples/cache").rglob("sgl-tune.json"))),
        (*_LIST, ("prune", "cache", "--stale", "-y")),
    ),
    "journal": Input(
        f"{RANKS}/.sgl-tune.journal",
        (_json({**_JOURNAL, "seen": {}}), _json({**_JOURNAL, "seen": {"../../outside": [None, None]}})),
        (("prune", "--older-than", "900d", "-y", "cache"),),
    ),
    "managed store": Input(
        f"{STORE}/entries/0123456789abcdef01234567.json",
        (_json(_ENTRY),),
        (("inspect", "store", "--entries"), ("verify", "store", "--format", "json")),
    ),
    "env.json": Input(
        "env.json",
        ((ROOT / "cache-examples/h200.env.json").read_bytes(), _json(TARGET)),
        (("verify", "--target", "env.json", "cache", "--format", "json"),),
    ),
    "nodes": Input("nodes.jsonl", (_NODE,), (("verify", "--fleet", "nodes.jsonl", *SERVER),)),
    "config.json": Input(
        "model/config.json",
        tuple(_json(preset.config) for preset in presets()),
        (("warm", "--dry-run", "--model-path", "model", "--gpu", "sm90", "--tp", "2", "--format", "json"),),
    ),
    "sgl-tune.toml": Input(
        "sgl-tune.toml",
        (b'[defaults]\ntp = 2\n[deployments.a]\nmodel-path = "Qwen3-30B-A3B"\n',),
        (("warm", "--dry-run", "--gpu", "sm90"),),
    ),
    "bundle": Input(
        "b.tar.gz",
        (GOOD,),
        (("unpack", "b.tar.gz", "--cache-dir", "cache"), ("inspect", "b.tar.gz"), ("verify", "b.tar.gz")),
    ),
    "server log": Input(
        "server.log",
        ((head() + loaded() + served(31)).encode(),),
        (("start-report", "server.log", "--format", "json"), ("mem-report", "--log", "server.log")),
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_no_damage_makes_a_command_crash(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = INPUTS[name]
    for number in range(COUNT):
        chance = Random(f"{name} {number}")
        folder = tmp_path / str(number)
        write_ranks(cache_folder(folder / "cache"), rank_names(2), good())
        (folder / STORE / "entries").mkdir(parents=True)
        (folder / STORE / "manifest.json").write_bytes(_json({**TARGET, "cache_schema": "v2"}))
        (folder / "cache/flashinfer/autotune/0.7.2/outside").write_text("outside")
        (folder / given.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / given.path).write_bytes(damaged(chance.choice(given.seeds), chance))
        monkeypatch.chdir(folder)
        begun, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ran = run_here(*chance.choice(given.commands))
        assert time.process_time() - begun < 2, number
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 500 << 10, number
        assert ran.code in (0, 1, 2, 3) and "bug in sgl-tune" not in ran.err, f"{number}: {ran.err[-2000:]}"
        said = [line for line in ran.err.splitlines() if line.startswith(("error:", "Error:"))]
        assert ran.code < 2 or said, number
        assert all(len(line) < 4000 for line in said), number
        assert (folder / "cache/flashinfer/autotune/0.7.2/outside").read_text() == "outside"
