"""A name that a file gives to a GPU fills no screen, and a size that no GPU has is wrong usage."""

import json
from pathlib import Path

import pytest

from tests.sgl_tune.cache.caches import cache_folder, good, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.running import run

LONG = {**TARGET, "gpu": "N" * 8_000_000}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    write_ranks(cache_folder(folder), ["rank_tp0_pp0_dp0.json"], good(LONG))
    (folder / "env.json").write_text(json.dumps(LONG).replace("N" * 4_000_000, "N"))
    (folder / "wide.json").write_text(json.dumps({**TARGET, "gpu": "N N" * 1000}))
    about = {"event": "run", "schema_version": 1, "device": "cuda", "total_bytes": 1 << 30}
    (folder / "run.jsonl").write_text(json.dumps({**about, "gpu": LONG["gpu"]}) + "\n")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "."),
        ("inspect", ".", "--entries"),
        ("verify", "."),
        ("verify", ".", "--target", "env.json"),
        ("verify", ".", "--target", "wide.json"),
        ("mem-report", "--from", "run.jsonl"),
        ("mem-report", "--from", "run.jsonl", "--format", "markdown"),
    ],
    ids=" ".join,
)
def test_a_name_of_megabytes_is_cut(words: tuple[str, ...], folder: Path) -> None:
    ran = run(*words, cwd=folder)
    assert len(ran.out + ran.err) < 20_000 and "bug" not in ran.err


@pytest.mark.parametrize("size", ["1000TiB", "17TiB", "99999999999TB"])
def test_a_gpu_larger_than_any_is_wrong_usage(size: str) -> None:
    pytest.importorskip("torch")
    ran = run("mem-report", "--model", "demo-moe", "--gpu-memory", size)
    assert ran.code == 2 and "bug" not in ran.err and size in ran.err
