"""`verify --replay` as its users run it, on kernels of a CPU."""

import json
from pathlib import Path

from tests.sgl_tune.cache.caches import KEY, cache_folder, rank_names, write_ranks
from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.schemas import schema_faults
from tests.warm.test_warm import SMALL, _warm, small

__all__ = ["small"]
GEMM1 = "sgl_tune::cpu_grouped_gemm1"
EVERY_EXPERT = 5


def test_each_choice_is_timed_and_nothing_written(small: tuple[str, ...], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code, _, err = _warm(cache, *small, "--prove", "none")
    assert code == 0, err
    (path,) = cache.rglob("rank_*.json")
    document = json.loads(path.read_text())
    keys = [key for key in document if key.startswith("(")]
    # The manifest knows that somebody else wrote it: its times are not of these choices.
    document[next(key for key in keys if f"{GEMM1}', 'CpuGroupedGemm', ((16," in key)][1] = EVERY_EXPERT
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    ran = run("verify", cache, "--replay", "--format", "json", OMP_NUM_THREADS="1")
    told = json.loads(ran.out)
    assert schema_faults("verify", told) == []
    (replayed,) = told["replay"]
    assert {entry["key"] for entry in replayed["entries"]} == set(keys)
    assert all(entry["best_ms"] > 0 and entry["default_ms"] > 0 for entry in replayed["entries"])
    lost = sum(entry["state"] in ("beaten", "fails") for entry in replayed["entries"])
    assert ran.code == (1 if lost else 0), ran.err
    assert f"timed again, {len(keys) - lost} of {len(keys)} choices hold" in told["verdict"]
    changed = next(one for one in replayed["entries"] if (one["op"], one["bucket"]) == (GEMM1, 16))
    assert changed["tactic"] == EVERY_EXPERT and changed["then_best_ms"] is None
    assert path.read_bytes() == before and not list(cache.rglob("*.tmp"))


def test_what_cannot_be_replayed_here_exits_with_2(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    assert run_here("verify", KEY, "--cache-dir", tmp_path, "--replay").ends(2, "nothing to replay")
    gpu = ("--model-path", "Qwen/Qwen3-30B-A3B", *SMALL[:2], "--gpu", "sm90")
    planned = json.loads(run_here("warm", "--dry-run", *gpu, "--cache-dir", tmp_path, "--format", "json").out)
    write_ranks(cache_folder(tmp_path, key=planned["key"]), rank_names())
    ran = run_here("verify", "--cache-dir", tmp_path, "--replay", *gpu)
    assert ran.code == 2 and "--replay times the choices on sm90, and no GPU driver answers here" in ran.err
