"""Rank files that are links: a server follows them, `verify` as far as they stay in the cache."""

from pathlib import Path

from sgl_tune.verify.findings import Severity
from tests.sgl_tune.cache import caches
from tests.sgl_tune.cache.corpus import moe_key

SECOND = "rank_tp1_pp0_dp0.json"


def test_a_link_to_the_file_of_another_rank_is_loaded_like_it(tmp_path: Path) -> None:
    folder = caches.cache_folder(tmp_path)
    caches.write_ranks(folder, caches.rank_names())
    (folder / SECOND).symlink_to(caches.rank_names()[0])
    report = caches.verify_all(tmp_path)
    assert caches.verdicts(report) == ["hit", "hit"] and report.ok(strict=True)
    (found,) = report.files[1].findings
    assert found.code == "is-a-link" and "the server loads that" in found.message


def test_files_mounted_as_a_config_map_are_judged(tmp_path: Path) -> None:
    """Kubernetes shows each file as a link through a link to a folder."""
    folder = caches.cache_folder(tmp_path)
    (folder / "..2026").mkdir()
    caches.write_ranks(folder / "..2026", caches.rank_names(tp=2))
    (folder / "..data").symlink_to("..2026")
    for name in caches.rank_names(tp=2):
        (folder / name).symlink_to(f"..data/{name}")
    assert caches.verdicts(caches.verify_all(tmp_path)) == ["hit", "hit"]
    (folder / "..2026" / SECOND).write_bytes(b"{")
    assert caches.verdicts(caches.verify_all(tmp_path)) == ["deleted", "deleted"]


def test_what_a_link_leads_to_is_compared_with_the_other_ranks(tmp_path: Path) -> None:
    folder = caches.cache_folder(tmp_path)
    caches.write_ranks(folder, caches.rank_names())
    (folder / "other").write_bytes(caches.good(**{moe_key(1): ["MoERunner", 33, ["x"]]}))
    (folder / SECOND).symlink_to("other")
    report = caches.verify_all(tmp_path)
    assert caches.verdicts(report) == ["deleted", "deleted"] and "ranks-differ" in caches.codes(report)


def test_a_link_out_of_the_cache_is_loaded_by_the_server_and_read_by_nobody_here(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_bytes(b"secret")
    folder = caches.cache_folder(tmp_path / "cache")
    caches.write_ranks(folder, caches.rank_names())
    (folder / SECOND).symlink_to(outside)
    report = caches.verify_all(tmp_path / "cache")
    assert caches.verdicts(report) == ["hit", "partial"] and not report.ok()
    (found,) = report.files[1].findings
    assert (found.code, found.severity) == ("is-a-link", Severity.ERROR)
    assert "outside of the cache, and is not read here" in found.message and "secret" not in str(report)
    assert "ranks-differ" not in caches.codes(report), "nobody knows whether they do"


def test_a_link_to_nothing_is_replaced(tmp_path: Path) -> None:
    for target in ("nowhere", SECOND):  # and one that leads to itself
        folder = caches.cache_folder(tmp_path / target)
        (folder / SECOND).symlink_to(target)
        report = caches.verify_all(tmp_path / target)
        assert caches.verdicts(report)[-1] == "replaced" and "is-a-link" in caches.codes(report)
