"""What the next start does with one file: the verdict, its findings, and what they say."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.record import serialise
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Checked
from sgl_tune.verify.findings import FileReport, Severity
from sgl_tune.verify.verify import verify
from tests.sgl_tune.cache.caches import (
    HERE,
    cache_folder,
    codes,
    good,
    rank_names,
    verdicts,
    verify_all,
    write_ranks,
)
from tests.sgl_tune.cache.corpus import COLD, HOT, TARGET, build_corpus, moe_entries, moe_key, target_of

CORPUS = build_corpus(TARGET, moe_entries())
VERDICT_OF = {"hard": "ignored", "soft": "replaced"}
CODE_OF_EXCEPTION = {
    "UnicodeDecodeError": {"not-text"},
    "JSONDecodeError": {"not-json"},
    "TypeError": {"not-an-object", "entry-kills-loader"},
    "AttributeError": {"not-an-object", "entry-kills-loader"},
    "KeyError": {"entry-kills-loader"},
    "IndexError": {"entry-kills-loader"},
    "ValueError": {"number-too-long", "records-not-an-object"},
    "RecursionError": {"nested-too-deep", "entry-kills-loader"},
}
UNKNOWN = Target(None, "nobody")


def _verify_one(tmp_path: Path, raw: bytes, target: Target = HERE, **server: Any) -> FileReport:
    (cache_folder(tmp_path) / "rank_tp0_pp0_dp0.json").write_bytes(raw)
    (report,) = verify_all(tmp_path, target, **server).files
    return report


def _codes(report: FileReport) -> set[str]:
    return {found.code for found in report.findings}


@pytest.mark.parametrize("name", [n for n, case in CORPUS.items() if case.loads in CODE_OF_EXCEPTION])
def test_what_kills_the_loader_is_a_crash_that_names_the_exception(name: str, tmp_path: Path) -> None:
    case = CORPUS[name]
    report = _verify_one(tmp_path, case.raw)
    assert report.verdict.value == "crash"
    killing = report.findings[0]
    assert killing.code in CODE_OF_EXCEPTION[case.loads]
    assert killing.severity is Severity.ERROR
    assert case.loads in killing.message


@pytest.mark.parametrize("name", [n for n, case in CORPUS.items() if case.loads in VERDICT_OF])
def test_another_environment_is_ignored_or_replaced(name: str, tmp_path: Path) -> None:
    case = CORPUS[name]
    report = _verify_one(tmp_path, case.raw)
    assert report.verdict.value == VERDICT_OF[case.loads]
    assert ("other-environment" in _codes(report)) == (case.loads == "hard")
    assert ("unknown-environment" in _codes(report)) == (case.loads == "soft")


def test_a_good_file_is_a_hit_without_findings(tmp_path: Path) -> None:
    report = _verify_one(tmp_path, good())
    assert (report.verdict.value, report.findings) == ("hit", ())


def test_the_differing_fields_are_named_with_both_values(tmp_path: Path) -> None:
    report = _verify_one(tmp_path, good({**TARGET, "cudnn_version": "90000"}))
    (found,) = report.findings
    assert "cudnn_version: file 90000, server 91900" in found.message
    assert "never saves" in found.message


@pytest.mark.parametrize(
    ("name", "verdict", "code"),
    [
        ("entry-without-policy", "hit", "generation-wrong"),
        ("wildcard", "hit", "generation-wrong"),
        ("metadata-missing", "hit", "no-environment"),
        ("metadata-null", "hit", "no-environment"),
        ("entry-string", "partial", "value-malformed"),
        ("four-elements", "hit", "value-malformed"),
        ("policy-string", "partial", "policy-misses"),
        ("policy-dict", "partial", "policy-misses"),
        ("policy-cold", "partial", "policy-misses"),
        ("policy-empty", "partial", "policy-misses"),
        ("runner-other", "partial", "runner-mismatch"),
        ("runner-cudnn-index", "partial", "cudnn-index"),
        ("runner-cudnn-bool", "partial", "cudnn-index"),
        ("tactic-nan", "partial", "tactic-unusable"),
        ("tactic-infinite", "partial", "tactic-unusable"),
        ("tactic-dict", "partial", "tactic-unusable"),
        ("tactic-null", "partial", "tactic-unusable"),
        ("tactic-string", "partial", "tactic-unusable"),
        ("tactic-tuple", "partial", "tactic-unusable"),
        ("tactic-nested-100", "partial", "tactic-unusable"),
        ("empty-object", "partial", "no-entries"),
        ("every-entry-gone", "partial", "no-entries"),
        ("junk-keys", "hit", "key-unreadable"),
        ("unknown-member", "hit", "key-unreadable"),
        ("generation-wrong", "hit", "generation-wrong"),
        ("generation-number", "hit", "generation-wrong"),
        ("generation-missing", "hit", "generation-missing"),
        ("duplicate-key", "hit", "duplicate-key"),
    ],
)
def test_bad_content_that_loads_has_its_code(name: str, verdict: str, code: str, tmp_path: Path) -> None:
    report = _verify_one(tmp_path, CORPUS[name].raw)
    assert report.verdict.value == verdict
    assert code in _codes(report)


@pytest.mark.parametrize(
    "name", ["one-line", "windows-newlines", "tactic-fallback", "duplicate-key-overruled"]
)
def test_what_only_looks_odd_is_a_hit(name: str, tmp_path: Path) -> None:
    assert _verify_one(tmp_path, CORPUS[name].raw).verdict.value == "hit"


TRTLLM = "('flashinfer::trtllm_fp8_block_scale_moe', 'MoERunner', ((64, 7168), (64, 256)), ('Module', 8))"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["MoERunner", [8, 3], COLD], set()),
        (["MoERunner", -1, COLD], set()),
        (["MoERunner", [8, 3], HOT], {"policy-misses"}),
        (["MoERunner", [8, 3]], {"policy-misses"}),
        (["MoERunner", [8, "x"], COLD], {"tactic-unusable"}),
        (["MoERunner", 1 << 40, COLD], {"tactic-unusable"}),
    ],
)
def test_trtllm_needs_a_cold_policy_and_a_pair(value: list[Any], expected: set[str], tmp_path: Path) -> None:
    assert _codes(_verify_one(tmp_path, serialise(TARGET, {TRTLLM: value}))) == expected


def test_keys_in_another_versions_form_are_never_looked_up(tmp_path: Path) -> None:
    three = "('trtllm::fused_moe::gemm1', 'MoERunner', ((64, 2048), (128, 1536, 2048)))"
    report = _verify_one(tmp_path, good(**{three: ["MoERunner", 1, HOT]}))
    assert _codes(report) == {"key-unreadable"}


def test_a_broken_entry_is_found_though_the_environment_hides_it(tmp_path: Path) -> None:
    report = _verify_one(tmp_path, CORPUS["broken-entry-other-gpu"].raw)
    assert report.verdict.value == "ignored"
    assert {"other-environment", "crash-elsewhere"} <= _codes(report)
    assert any("TypeError" in found.message for found in report.findings)


@pytest.mark.parametrize(
    ("metadata", "verdict"),
    [
        ({}, "replaced"),
        ({"flashinfer_version": "0.7.2", "gpu": "NVIDIA H200"}, "replaced"),
        ({"flashinfer_version": "0.6.14", "gpu": "NVIDIA H200"}, "ignored"),
        (target_of("0.6.14"), "hit"),
        ({**TARGET, "cudnn_version": 91900}, "ignored"),
        ({**TARGET, "cudnn_version": None}, "replaced"),
        ({**TARGET, "cudnn_version": "unknown"}, "hit"),
    ],
)
def test_without_a_target_only_what_no_server_accepts_is_held_against_it(
    metadata: dict[str, Any], verdict: str, tmp_path: Path
) -> None:
    (tmp_path / "rank_tp0_pp0_dp0.json").write_text(json.dumps({**json.loads(good()), "_metadata": metadata}))
    assert verdicts(verify_all(tmp_path, UNKNOWN)) == [verdict]


@pytest.mark.parametrize(("is_folder", "verdict"), [(True, "crash"), (False, "missing")])
def test_a_file_that_goes_meanwhile_stops_no_other(is_folder: bool, verdict: str, tmp_path: Path) -> None:
    _, second = write_ranks(cache_folder(tmp_path), rank_names(tp=2))
    caches = find_caches(tmp_path)
    second.unlink()
    if is_folder:
        second.mkdir()
    report = verify([Checked(cache, "0.5.17") for cache in caches], HERE)
    assert verdicts(report) == ["hit", verdict]
    assert (report.files[1].findings[-1].code == "not-a-file") == is_folder
    found = verify([Checked(one, "0.5.17") for one in find_caches(tmp_path)], HERE)
    assert verdicts(found) == ["hit", *[verdict for _ in range(is_folder)]]


def test_litter_is_named_with_its_remedy(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path)
    write_ranks(folder, rank_names())
    (folder / ".autotuner_x1y2.tmp").write_bytes(b"")
    (folder / ".sgl-tune.journal").write_bytes(b"{}")
    (folder / "runs").mkdir()
    (folder / "runs" / "rank_tp0_pp0_dp0.20261101_000000.json").write_bytes(b"{}")
    report = verify_all(tmp_path)
    assert codes(report) == {"leftover-temporary", "interrupted-write", "old-runs"}
    assert report.ok() and not report.ok(strict=True)


def test_caches_of_another_flashinfer_are_never_opened(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    write_ranks(cache_folder(tmp_path, "0.6.12"), rank_names(), CORPUS["truncated"].raw)
    report = verify_all(tmp_path)
    assert sorted(verdicts(report)) == ["hit", "ignored"]
    assert codes(report) == {"stale-sibling", "crash-elsewhere"}
    assert report.ok()


def test_without_a_target_an_older_version_beside_a_newer_is_pointed_out(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    old = good({**TARGET, "flashinfer_version": "0.7.1"})
    write_ranks(cache_folder(tmp_path, "0.7.1"), rank_names(), old)
    report = verify_all(tmp_path, UNKNOWN)
    assert verdicts(report) == ["hit", "hit"] and codes(report) == {"stale-sibling", "target-unknown"}


LONG = "x" * 10_000


@pytest.mark.parametrize(
    "raw",
    [
        serialise(TARGET, {LONG: ["R", 1], **moe_entries()}),
        serialise(TARGET, {LONG: 7}),
        serialise(TARGET, {f"('{LONG}', '{LONG[:9]}', ((1,),), ())": ["R", LONG]}),
        serialise({**TARGET, "gpu": LONG}, {}),
        b'{"' + LONG.encode() + b'": ["R", 1], "' + LONG.encode() + b'": ["R", 1]}',
        serialise(TARGET, {moe_key(1): ["MoERunner", LONG, HOT]}),
    ],
)
def test_hostile_content_does_not_fill_the_screen(raw: bytes, tmp_path: Path) -> None:
    report = _verify_one(tmp_path, raw)
    assert report.findings
    assert all(len(found.message) < 400 for found in report.findings)


def test_a_file_copied_into_a_newer_versions_folder_is_ignored_by_whoever_opens_it(tmp_path: Path) -> None:
    raw = good({**TARGET, "flashinfer_version": "0.7.1"})
    report = _verify_one(tmp_path, raw, UNKNOWN)
    assert report.verdict.value == "ignored"
    assert "flashinfer_version: file 0.7.1, server 0.7.2" in report.findings[0].message
