"""FlashInfer's managed store: a broken entry is a miss, another environment another folder."""

from pathlib import Path
from typing import Any

import pytest

from sgl_tune.verify.environment import Target
from tests.sgl_tune.cache.caches import HERE, add_entry, codes, managed_store, verdicts, verify_all
from tests.sgl_tune.cache.corpus import COLD, HOT, TARGET, moe_key

UNKNOWN = Target(None, "nobody")
SILENT = HERE._replace(metadata={**TARGET, "cuda_version": "unknown"})


def _add(folder: Path, key: str = moe_key(1), **members: Any) -> Path:
    return add_entry(folder, key, **{"runner": "MoERunner", "profiling_policy": HOT, **members})


@pytest.mark.parametrize(("target", "verdict"), [(HERE, "hit"), (UNKNOWN, "hit"), (SILENT, "unknown")])
def test_a_store_of_this_environment_is_a_hit(target: Target, verdict: str, tmp_path: Path) -> None:
    folder = managed_store(tmp_path, TARGET)
    _add(folder)
    _add(folder, moe_key(2))
    report = verify_all(tmp_path, target)
    assert verdicts(report) == [verdict, verdict] and report.ok() == (verdict == "hit")


def test_a_store_of_another_environment_is_never_opened(tmp_path: Path) -> None:
    _add(managed_store(tmp_path, {**TARGET, "cudnn_version": "90000"}))
    report = verify_all(tmp_path)
    assert verdicts(report) == ["ignored"] and codes(report) == {"other-folder"}
    assert "cudnn_version: store 90000, server 91900" in report.findings[0].message


def test_a_renamed_store_is_found_by_nobody(tmp_path: Path) -> None:
    folder = managed_store(tmp_path, TARGET)
    _add(folder)
    folder.rename(folder.with_name("0" * 16))
    report = verify_all(tmp_path, UNKNOWN)
    assert verdicts(report) == ["ignored"]
    assert "renamed" in report.findings[0].message


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"\xff", b'{"key": 3, "runner": "R", "tactic": 1}', b'{"runner": "R"}', b"[" * 100_000],
)
def test_a_broken_entry_is_a_miss_and_no_crash(raw: bytes, tmp_path: Path) -> None:
    folder = managed_store(tmp_path, TARGET)
    (folder / "entries" / "0.json").write_bytes(raw)
    report = verify_all(tmp_path)
    assert verdicts(report) == ["ignored"] and codes(report) == {"managed-entry-invalid"}
    assert report.ok() and not report.ok(strict=True)


def test_an_entry_under_another_keys_name_is_a_miss(tmp_path: Path) -> None:
    entry = _add(managed_store(tmp_path, TARGET))
    entry.rename(entry.with_name(f"{'0' * 24}.json"))
    assert codes(verify_all(tmp_path)) == {"managed-entry-invalid"}


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"profiling_policy": COLD}, "policy-misses"),
        ({"profiling_policy": None}, "policy-misses"),
        ({"runner": "OtherRunner"}, "runner-mismatch"),
        ({"tactic": None}, "tactic-unusable"),
    ],
)
def test_entries_are_judged_like_those_of_a_file(members: dict[str, Any], code: str, tmp_path: Path) -> None:
    _add(managed_store(tmp_path, TARGET), **members)
    report = verify_all(tmp_path)
    assert verdicts(report) == ["partial"] and codes(report) == {code}


def test_a_store_without_a_manifest_cannot_be_placed(tmp_path: Path) -> None:
    folder = managed_store(tmp_path, TARGET)
    _add(folder)
    (folder / "manifest.json").write_text("{")
    assert codes(verify_all(tmp_path)) == {"manifest-broken"}
