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
    assert told["verdict"].startswith("not used: ")
    words = told["fix"].split()
    assert words[:4] == ["sgl-tune", "warm", "--server", "core"]
    assert run_here(*words[1:2], "--dry-run", *words[2:]).code == 0
    line = run_here("doctor", *SERVER, *TUNED)
    assert line.out == f"{told['verdict']}; fix: {told['fix']}\n"


def test_the_fix_names_the_file_that_was_named(root: Path) -> None:
    (root / "start.sh").write_text(" ".join([*START.split(), "--model-path", "Qwen3-30B-A3B", *TUNED]))
    ran = run_here("doctor", "--server", "core", "-f", "start.sh")
    assert ran.code == 1 and ran.out.endswith("; fix: sgl-tune warm --server core -f start.sh\n")
    ran = run_here("verify", "--server", "core", "--gpu", "h200", "--cache-dir", root, "-f", "start.sh")
    fix = f"sgl-tune warm --server core --gpu h200 --cache-dir {root} -f start.sh"
    assert ran.code == 1 and " ".join(ran.err.split()).endswith(f"hint: {fix}")
