"""`sgl-tune doctor`: one line, and verify's exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.verify.environment import UNTOLD, Target
from tests.sgl_tune.cache.caches import cache_folder, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.planning import START
from tests.sgl_tune.running import Ran, run_here
from tests.sgl_tune.schemas import schema_faults

SERVER = ("--server", "core", "--", *START.split(), "--model-path", "Qwen3-30B-A3B")
TUNED = ("--moe-runner-backend", "flashinfer_cutlass")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGLANG_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _on(machine: Target, patch: pytest.MonkeyPatch) -> Ran:
    patch.setattr("sgl_tune.commands.doctor.target_here", lambda: machine)
    ran = run_here("doctor")
    assert ran.out.count("\n") == 1
    return ran


def test_files_that_load_on_this_machine_are_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ranks(cache_folder(root), rank_names(tp=2))
    ran = _on(Target.of(TARGET, "this machine", "sm90"), monkeypatch)
    assert ran.code == 0 and ran.out.startswith("used: 2 of 2 files load")
    ran = _on(Target.of({**TARGET, "cuda_version": "12.9"}, "this machine", "sm90"), monkeypatch)
    assert ran.code == 1 and ran.out.startswith("not used: ") and "12.9" in ran.out


def test_a_machine_without_a_gpu_does_not_know(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ranks(cache_folder(root), rank_names(tp=2))
    ran = _on(UNTOLD, monkeypatch)
    assert ran.code == 1 and ran.out.startswith("not known: 2 of 2 files load")
    assert "not compared with this machine" in ran.out and "sgl-tune verify --target env.json" in ran.out


def test_a_fix_with_an_option_that_doctor_lacks_names_verify(root: Path) -> None:
    ran = run_here("doctor", *SERVER[:-1], "org/nobody")
    fix = ran.err.rpartition("; with it: ")[2].split()
    assert ran.code == 2 and fix[:6] == ["sgl-tune", "verify", "--server", "core", "--model-config", "FILE"]
    fix[fix.index("FILE")] = "Qwen3-30B-A3B"
    assert run_here(*fix[1:]).code == 0


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
