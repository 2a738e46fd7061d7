"""`sgl-tune warm` as its users run it, on the demo model's CPU kernels: files, proof, and what goes wrong."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from sgl_tune.cache.manifest import read_manifest
from tests.disks import mounted
from tests.sgl_tune.running import PROGRAM, ROOT, environment
from tests.sgl_tune.schemas import schema_faults
from tests.warm.processes import children_of, command_of, until

SECONDS = 180
MODEL = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 256, "hidden_size": 64,
    "intermediate_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
}  # fmt: skip
_BATCHES = ("--chunked-prefill-size", "16", "--max-running-requests", "16")
SMALL = ("--moe-runner-backend", "flashinfer_cutlass", *_BATCHES)


def _start(cache: Path, *arguments: str, **changes: Any) -> subprocess.Popen[str]:
    settings = environment(OMP_NUM_THREADS="1", **changes.pop("env", {}))
    command = [*PROGRAM, "warm", "--cache-dir", str(cache), *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=settings, **streams, **{"cwd": ROOT, **changes})


def _end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def _warm(cache: Path, *arguments: str, **changes: Any) -> tuple[int, str, str]:
    return _end(_start(cache, *arguments, **changes))


def _rank_files(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(cache.rglob("rank_*.json"))}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A model that is tuned in a moment."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(MODEL))
    return ("--model-path", str(folder), "--gpu", "cpu", *SMALL)


@pytest.fixture(scope="module")
def pair(small: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model's files for two ranks."""
    cache = tmp_path_factory.mktemp("pair")
    code, _, err = _warm(cache, *small, "--tp", "2")
    assert code == 0, err
    return cache


@pytest.fixture
def warmed(pair: Path, tmp_path: Path) -> Path:
    """A copy of them, to spoil."""
    return copytree(pair, tmp_path / "cache")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    cache = tmp_path_factory.mktemp("demo")
    code, out, err = _warm(cache, "--tp", "8", "--dp", "8", "--format", "json")
    assert code == 0, err
    return cache, json.loads(out)


def test_the_main_job_writes_eight_identical_files_and_proves_them(demo: tuple[Path, dict[str, Any]]) -> None:
    cache, result = demo
    files = _rank_files(cache)
    assert list(files) == [f"rank_tp{rank}_pp0_dp{rank}.json" for rank in range(8)]
    assert len(set(files.values())) == 1
    assert schema_faults("warm", result) == []
    planned = {key for op in result["ops"] for key in op["keys"]}
    assert {key for key in json.loads(next(iter(files.values()))) if not key.startswith("_")} == planned
    assert (result["tuned"], result["reused"], result["failed"]) == (len(planned), 0, [])
    proof = result["proof"]
    assert (proof["misses"], proof["profiled"]) == ([], {})
    assert proof["hits"] == proof["asked"] > len(planned)


def test_a_second_warm_tunes_nothing(demo: tuple[Path, dict[str, Any]]) -> None:
    cache, first = demo
    code, out, err = _warm(cache, "--tp", "8", "--dp", "8", "--prove", "none", "--format", "json")
    assert code == 0, err
    again = json.loads(out)
    assert (again["tuned"], again["reused"]) == (0, first["tuned"])
    assert again["digest"] == first["digest"]


def test_the_manifest_says_what_was_measured_also_after_a_second_warm(
    demo: tuple[Path, dict[str, Any]],
) -> None:
    cache, first = demo
    (path,) = cache.rglob("sgl-tune.json")
    manifest = read_manifest(path)
    measured, races = manifest.measured, manifest.races
    assert set(measured) == {key for op in first["ops"] for key in op["keys"]}
    assert all(told["best_ms"] > 0 and told["launches"] > 0 for told in measured.values())
    assert set(races) == set(measured) and all(0.0 in race.values() for race in races.values())


def test_a_worker_killed_in_the_search_is_one_line_and_no_partial_set(tmp_path: Path) -> None:
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    scratch.mkdir()
    process = _start(cache, "--tp", "8", "--dp", "8", "--prove", "none", env={"TMPDIR": str(scratch)})
    os.kill(_searching_worker(process.pid, scratch), signal.SIGKILL)
    code, out, err = _end(process)
    assert code == 3 and out == ""
    assert "error: worker 0 of 1 was killed by SIGKILL; " in err
    assert len(_rank_files(cache)) in (0, 8) and len(set(_rank_files(cache).values())) <= 1
    assert _rank_files(cache) or list(cache.iterdir()) == []


def test_ctrl_c_keeps_what_was_decided_and_the_next_warm_goes_on(tmp_path: Path) -> None:
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    scratch.mkdir()
    demo = ("--tp", "8", "--dp", "8", "--prove", "none")
    process = _start(cache, *demo, env={"TMPDIR": str(scratch)}, start_new_session=True)
    _searching_worker(process.pid, scratch, until_there="tuned.0.json")
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = _end(process)
    assert code == 130 and out == ""
    said = re.search(r"interrupted by SIGINT: the workers were stopped; (\d+) decided entries are kept", err)
    assert said and 12 <= (kept := int(said[1])) <= 24, err
    assert len(set(_rank_files(cache).values())) == 1 and len(_rank_files(cache)) == 8
    code, out, err = _warm(cache, *demo, "--format", "json")
    assert code == 0, err
    assert (json.loads(out)["reused"], json.loads(out)["tuned"]) == (kept, 24 - kept)


def test_a_corrupt_file_is_set_aside_and_written_anew(small: tuple[str, ...], warmed: Path) -> None:
    before = _rank_files(warmed)
    broken = next(warmed.rglob("rank_tp1*.json"))
    broken.write_bytes(broken.read_bytes()[:200])
    code, out, err = _warm(warmed, *small, "--tp", "2", "--prove", "none", "--format", "json")
    assert code == 0, err
    assert f"kept as {broken.name}.broken" in err
    assert json.loads(out)["tuned"] == 0
    assert _rank_files(warmed) == before


def test_two_warms_at_once_both_end_well(small: tuple[str, ...], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    both = [_start(cache, *small, "--tp", "2", "--prove", prove) for prove in ("files", "none")]
    for process in both:
        code, _, err = _end(process)
        assert code == 0, err
    assert len(set(_rank_files(cache).values())) == 1


def test_an_unwritable_directory_is_said_before_the_search(small: tuple[str, ...], tmp_path: Path) -> None:
    with mounted(tmp_path / "cache", "ro") as cache:
        code, out, err = _warm(cache, *small)
    assert (code, out) == (3, "")
    assert str(cache) in err and "Traceback" not in err and "starting" not in err


def test_a_full_disk_ends_in_one_line_and_no_damaged_file(tmp_path: Path) -> None:
    with mounted(tmp_path / "cache", "size=32k") as cache:
        code, out, err = _warm(cache, "--tp", "8", "--dp", "8", "--prove", "none")
        assert _rank_files(cache) == {}
    assert (code, out) == (3, "")
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("error: ")] and "full" in err


def test_another_environments_files_are_refused_until_told_so(small: tuple[str, ...], warmed: Path) -> None:
    before = _rank_files(warmed)
    for path in warmed.rglob("rank_*.json"):
        document = json.loads(path.read_bytes())
        document["_metadata"]["cudnn_frontend_version"] = "0.0.1"
        path.write_text(json.dumps(document))
    foreign = _rank_files(warmed)
    again = ("--tp", "2", "--prove", "none")
    code, _, err = _warm(warmed, *small, *again)
    assert code == 3 and "cudnn_frontend_version is '0.0.1' there" in err and "--replace" in err
    assert _rank_files(warmed) == foreign
    code, _, err = _warm(warmed, *small, *again, "--replace")
    assert code == 0, err
    assert _rank_files(warmed).keys() == before.keys() and len(set(_rank_files(warmed).values())) == 1
    written = json.loads(next(iter(_rank_files(warmed).values())))
    assert written["_metadata"] == json.loads(next(iter(before.values())))["_metadata"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpu", "sm90"), "the target is sm90, the devices here are cpu"),
        (("--device", "cuda"), "no GPU driver answers here"),
    ],
)
def test_a_target_of_elsewhere_is_refused(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = _warm(tmp_path / "cache", *arguments)
    assert (code, out) == (2, "") and sentence in err


def _searching_worker(parent: int, scratch: Path, until_there: str = "base.0.0.json") -> int:
    """The pid of worker 0, once its folder holds that file."""
    until(lambda: list(scratch.glob(f"sgl-tune-*/{until_there}")), SECONDS)
    return next(pid for pid in children_of(parent) if "sgl_tune.warm.worker" in command_of(pid))
