"""What a start makes of a set of rank files: equal, different, incomplete."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.flashinfer.versions import HOT
from sgl_tune.cache.asked import ExpectedEntry, TunedOp
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.record import serialise
from sgl_tune.verify.expected import Checked, Expected
from sgl_tune.verify.findings import Severity, VerifyReport
from sgl_tune.verify.verify import verify
from tests.sgl_tune.cache.caches import (
    HERE,
    KEY,
    cache_folder,
    codes,
    good,
    rank_names,
    verdicts,
    verify_all,
    write_ranks,
)
from tests.sgl_tune.cache.corpus import TARGET, moe_entries, moe_key

FOLDER = f"flashinfer/autotune/0.7.2/sm90/{KEY}"


def _retuned() -> bytes:
    return good(**{moe_key(1): ["MoERunner", 33, list(HOT)]})


def _make_expected(names: list[str], buckets: tuple[int, ...] = (), asked_by: str = "tuning") -> Expected:
    entries = tuple(ExpectedEntry(moe_key(b), b, asked_by) for b in buckets)  # type: ignore[arg-type]
    ops = (TunedOp("trtllm::fused_moe::gemm1", "MoERunner", HOT, entries),) if buckets else ()
    return Expected(FOLDER, KEY, (tuple(names),), ops)


def _asked(root: Path, expected: Expected) -> VerifyReport:
    (cache,) = find_caches(root)
    return verify([Checked(cache, "0.5.23", expected)], HERE)


def test_one_other_tactic_costs_the_whole_group(tmp_path: Path) -> None:
    paths = write_ranks(cache_folder(tmp_path), rank_names(tp=4))
    paths[2].write_bytes(_retuned())
    report = verify_all(tmp_path)
    assert verdicts(report) == ["deleted"] * 4
    (summary,) = report.findings
    assert (summary.code, summary.severity) == ("ranks-differ", Severity.ERROR)
    assert "rank_tp2_pp0_dp0 differs from rank_tp0_pp0_dp0" in summary.message
    assert "gemm1 bucket 1 (tactic 33, not 20)" in summary.message
    assert "0.5.19" in summary.message or "deletes" in summary.message
    assert all(file.findings[0].code == "ranks-differ" for file in report.files)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda raw: raw.replace(b'"13.1.0"', b'"13.2.0"'), "_metadata (cublas_version)"),
        (lambda raw: json.dumps({**json.loads(raw), "_records": {"a": {}}}, indent=2).encode(), "_records"),
        (lambda raw: raw.replace(b"\n    20,", b"\n    20.0,", 1), "gemm1 bucket 1"),
        (lambda raw: raw[:100], "cannot be read"),
        (lambda raw: b"[]", "cannot be read"),
    ],
)
def test_any_different_content_counts(change: Callable[[bytes], bytes], named: str, tmp_path: Path) -> None:
    paths = write_ranks(cache_folder(tmp_path), rank_names(tp=4))
    paths[1].write_bytes(change(good()))
    report = verify_all(tmp_path)
    assert verdicts(report) == ["deleted"] * 4
    assert named in report.findings[0].message


REPLICAS = [f"rank_tp{tp}_pp0_dp{dp}.json" for dp in (0, 1) for tp in (0, 1)]
TURNED = json.dumps(dict(reversed(json.loads(good()).items()))).encode()


@pytest.mark.parametrize(
    ("names", "others", "expected"),
    [
        (rank_names(tp=2), {1: TURNED}, ["hit"] * 2),  # order and white space do not count
        (rank_names(tp=2), {0: b"{", 1: b"[]"}, ["crash"] * 2),  # broken alike is no difference
        (rank_names(tp=2, pp=2), dict.fromkeys((2, 3), _retuned()), ["hit"] * 4),  # stages may differ
        (REPLICAS, dict.fromkeys((2, 3), _retuned()), ["hit"] * 4),
        (rank_names(tp=4, dp_attention=True), {3: _retuned()}, ["deleted"] * 4),
        ([f"rank_tp{tp}_pp0_dp0.json" for tp in range(8, 16)], {}, ["hit"] * 8),  # of a second node
        ([f"rank_tp{tp}_pp0_dp0_gpuGPU-{tp}.json" for tp in (0, 1)], {}, ["hit"] * 2),  # of MegaMoE
    ],
)
def test_ranks_of_a_group_are_equal(
    names: list[str], others: dict[int, bytes], expected: list[str], tmp_path: Path
) -> None:
    paths = write_ranks(cache_folder(tmp_path), names)
    for at, raw in others.items():
        paths[at].write_bytes(raw)
    report = verify_all(tmp_path)
    assert verdicts(report) == expected and ("ranks-differ" in codes(report)) == ("deleted" in expected)


@pytest.mark.parametrize("dp_attention", [False, True])
def test_a_hole_between_the_ranks_is_a_missing_file(dp_attention: bool, tmp_path: Path) -> None:
    names = rank_names(tp=4, dp_attention=dp_attention)
    folder = cache_folder(tmp_path)
    write_ranks(folder, [name for name in names if "tp2" not in name])
    report = verify_all(tmp_path)
    assert [file.path.name for file in report.files] == names
    assert verdicts(report) == ["deleted", "deleted", "missing", "deleted"]


def test_a_known_deployment_misses_ranks_that_no_hole_shows(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path)
    write_ranks(folder, rank_names(tp=2))
    report = _asked(tmp_path, _make_expected(rank_names(tp=4)))
    assert verdicts(report) == ["deleted", "deleted", "missing", "missing"]
    assert not report.ok()


def test_nothing_warmed_yet_is_missing_file_by_file(tmp_path: Path) -> None:
    expected = _make_expected(rank_names(tp=2))
    report = verify([Checked(expected.empty_cache(tmp_path), "0.5.23", expected)], HERE)
    assert [file.path for file in report.files] == [tmp_path / FOLDER / name for name in rank_names(tp=2)]
    assert verdicts(report) == ["missing", "missing"]
    assert codes(report) == {"rank-missing"}


def test_files_that_no_rank_reads_are_pointed_out(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names(tp=4))
    report = _asked(tmp_path, _make_expected(rank_names(tp=2)))
    assert codes(report) == {"rank-unexpected"}
    assert report.ok()


@pytest.mark.parametrize(
    ("asked_by", "sentence"), [("tuning", "tunes these at its start"), ("serving", "fallback tactic")]
)
def test_missing_buckets_of_a_deployment_are_named(asked_by: str, sentence: str, tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    report = _asked(tmp_path, _make_expected(rank_names(), (1, 512, 8192), asked_by))
    assert verdicts(report) == ["partial"]
    (missing,) = [found for found in report.all_findings() if found.code == "keys-missing"]
    assert "gemm1 at 512" in missing.message and sentence in missing.message
    assert missing.severity is Severity.WARNING


def test_a_file_with_nothing_that_is_asked_for_is_an_error(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    report = _asked(tmp_path, _make_expected(rank_names(), (3, 5)))
    assert verdicts(report) == ["partial"] and not report.ok()


def test_other_options_than_those_asked_for_are_named(tmp_path: Path) -> None:
    entries = {key.replace("False, False))", "False, True))"): value for key, value in moe_entries().items()}
    write_ranks(cache_folder(tmp_path), rank_names(), serialise(TARGET, entries))
    report = _asked(tmp_path, _make_expected(rank_names(), (1, 8192)))
    (options,) = [found for found in report.all_findings() if found.code == "other-options"]
    assert "2 entries of the right shapes, but option 17 of 17 is True, asked False" in options.message


def test_a_covered_deployment_is_a_hit_and_its_superset_harmless(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    report = _asked(tmp_path, _make_expected(rank_names(), (1, 8192)))
    assert verdicts(report) == ["hit"]
    (unused,) = report.files[0].findings
    assert (unused.code, unused.severity) == ("unused-entries", Severity.INFO)
    assert "12 of 14 entries" in unused.message


def test_an_entry_under_another_policy_does_not_cover(tmp_path: Path) -> None:
    entries = moe_entries()
    entries[moe_key(1)] = ["MoERunner", 1, ["l2_cache_policy", "cold"]]
    write_ranks(cache_folder(tmp_path), rank_names(), good(**entries))
    report = _asked(tmp_path, _make_expected(rank_names(), (1, 8192)))
    assert {"keys-missing", "policy-misses"} <= codes(report)
