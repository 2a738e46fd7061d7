"""`sgl-tune doctor`: one line, and verify's exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sgl_tune.cache.caches import cache_folder, rank_names, write_ranks
from tests.sgl_tune.planning import START
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import schema_faults

SERVER = ("--server", "core", "--", *START.split(), "--model-path", "Qwen3-30B-A3B")
TUNED = ("--moe-runner-backend", "flashinfer_cutlass")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGLANG_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_that_load_are_used(root: Path) -> None:
    write_ranks(cache_folder(root), rank_names(tp=2))
    ran = run_here("doctor")
    assert (ran.code, ran.out.count("\n")) == (0, 1) and ran.out.startswith("used: 2 of 2 files load")


def test_a_server_that_tunes_nothing_uses_none(root: Path) -> None:
    ran = run_here("doctor", *SERVER)
    assert ran.code == 0 and ran.out.startswith("nothing to use: the next start loads no file")


def test_a_missing_cache_is_said_with_what_makes_it(root: Path) -> None:
    ran = run_here("doctor", "--format", "json", *SERVER, *TUNED)
    told = json.loads(ran.out)
    assert schema_faults("doctor", told) == [] and (ran.code, told["used"], told["ok"]) == (1, False, False)
    assert told["verdict"].startswith("not used: rank-missing") and "sgl-tune warm" in ran.err
