"""What we write, read by FlashInfer; and FlashInfer and us taking turns on one file."""

import json
from pathlib import Path
from typing import Any

import pytest
from flashinfer.autotuner import AutoTuner, _collect_metadata

from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.store import write_group
from tests.sgl_tune.cache.corpus import HOT, moe_entries, moe_key
from tests.sgl_tune.running import run


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return _collect_metadata()


def _paths(folder: Path) -> list[Path]:
    return [folder / f"rank_tp{rank}_pp0_dp{rank}.json" for rank in range(4)]


def _loaded(path: Path) -> dict[str, Any]:
    tuner = AutoTuner()
    assert tuner.load_configs(str(path))
    return dict(tuner._file_configs)


def test_every_rank_loads_every_entry(tmp_path: Path, here: dict[str, str]) -> None:
    paths = _paths(tmp_path)
    write_group(paths, moe_entries(), {**here, "tuned_by": "sgl-tune"}, manifest=Manifest(here))
    for path in paths:
        assert _loaded(path) == {key: (runner, tactic) for key, (runner, tactic, _) in moe_entries().items()}


def test_saves_by_us_and_flashinfer_in_turn_lose_nothing(tmp_path: Path, here: dict[str, str]) -> None:
    (path,) = _paths(tmp_path)[:1]
    write_group([path], moe_entries((1, 2)), here)
    tuner = AutoTuner()
    tuner.load_configs(str(path))
    write_group([path], moe_entries((4, 8)), here)
    tuner._file_configs[moe_key(16)] = ("MoERunner", 5)
    tuner._file_config_policies[moe_key(16)] = tuple(HOT)
    tuner.save_configs(str(path))
    write_group([path], moe_entries((4096,)), here)
    entries = read_cache_file(path).entries
    assert entries.keys() == {*moe_entries((1, 2, 4, 8, 4096)), moe_key(16)}
    assert entries[moe_key(16)] == ["MoERunner", 5, HOT]


def test_env_says_what_flashinfer_would_write(here: dict[str, str]) -> None:
    ran = run("env", "--format", "json")
    assert ran.code == 0 and json.loads(ran.out)["metadata"] == here
    assert "takes a few seconds" in ran.err
