"""vLLM's files, a rank each: what its ranks make of them together. `tests/stock/vllm_reader.py` asks vLLM."""

from pathlib import Path

import pytest

from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.rank_names import VllmRank
from sgl_tune.cache.record import serialise
from sgl_tune.cache.scan import Scanner
from tests.sgl_tune.cache.caches import codes, good, verdicts, verify_all
from tests.sgl_tune.cache.corpus import TARGET, moe_entries


def _write(root: Path, *contents: bytes, replicas: int = 1) -> Path:
    folder = root / "flashinfer_autotune_cache/0.7.2/90a" / ("ab" * 32)
    folder.mkdir(parents=True)
    each = len(contents) // replicas
    for rank, raw in enumerate(contents):
        (folder / VllmRank(rank // each, rank).filename).write_bytes(raw)
    return folder


def _agree(root: Path) -> bool:
    (cache,) = find_caches(root)
    return Scanner().scan(cache).agree


def test_ranks_that_tell_the_same_are_hits(tmp_path: Path) -> None:
    _write(tmp_path, good(), good())
    report = verify_all(tmp_path)
    assert verdicts(report) == ["hit", "hit"] and codes(report) == set() and _agree(tmp_path)


@pytest.mark.parametrize(
    "other",
    [serialise(TARGET, moe_entries((1,))), good({**TARGET, "extra": "member"})],
    ids=["size", "environment"],
)
def test_ranks_that_tell_otherwise_all_tune(other: bytes, tmp_path: Path) -> None:
    _write(tmp_path, good(), other)
    report = verify_all(tmp_path)
    assert codes(report) == {"vllm-ranks-differ"} and not report.ok(strict=True) and not _agree(tmp_path)
    assert "rank0 15 members" in report.findings[0].message


def test_a_rank_without_a_file_is_missing(tmp_path: Path) -> None:
    folder = _write(tmp_path, *[good()] * 4, replicas=2)
    (folder / "autotune_configs_dp1_rank2.json").unlink()
    report = verify_all(tmp_path)
    missing = [file.path.name for file in report.files if file.verdict.value == "missing"]
    assert missing == ["autotune_configs_dp1_rank2.json"] and codes(report) == {"rank-missing"}


@pytest.mark.parametrize(
    ("raw", "verdict"),
    [
        (b"", "replaced"),
        (b"{", "replaced"),
        (b"3", "replaced"),
        (b"[]", "crash"),
        (b"\xff", "crash"),
        (b"[" * 100_000, "crash"),
    ],
)
def test_what_is_no_cache_file_is_none_before_it_can_kill(raw: bytes, verdict: str, tmp_path: Path) -> None:
    _write(tmp_path, raw, raw)
    assert verdicts(verify_all(tmp_path)) == [verdict, verdict]


def test_a_server_of_one_rank_reads_the_managed_store(tmp_path: Path) -> None:
    _write(tmp_path, good())
    assert codes(verify_all(tmp_path)) == {"vllm-one-rank"}
