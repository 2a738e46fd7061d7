"""Every FlashInfer that a server may have: what it did with odd files is what we say it does."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.flashinfer.versions import GENERATION, READ, doubt_of, flashinfer_of
from runtime.sglang.releases import NEWEST
from sgl_tune.cache.loader import Ignored, Loaded, Raised, Save, next_save
from sgl_tune.cache.record import serialise
from sgl_tune.cache.store import write_group
from sgl_tune.verify.environment import Target
from tests.sgl_tune.cache.caches import (
    cache_folder,
    codes,
    good,
    rank_names,
    verdicts,
    verify_all,
    write_ranks,
)
from tests.sgl_tune.cache.corpus import moe_key, target_of
from tests.sgl_tune.cache.predictions import is_shallow, load, our_load, our_save, recorded
from tests.stock.mutations import mutated_files

RECORDED = json.loads((Path(__file__).parent / "flashinfer_verdicts.json").read_text())
OLD_KEY = (
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((1, 2048), (128, 1536, 2048), (0,), (128, 2048, 768), (0,)))"
)
UNKNOWN = Target(None, "each file's own environment")


@pytest.mark.parametrize("version", RECORDED["verdicts"])
def test_odd_files_load_and_save_as_recorded_from_that_version(version: str) -> None:
    target = target_of(version)
    files = mutated_files(RECORDED["files"], RECORDED["seed"], target)
    ours = [
        recorded(raw, our_load(raw, target), our_save(raw, target)) for _, raw in files if is_shallow(raw)
    ]
    assert ours == RECORDED["verdicts"][version]


def test_the_flashinfer_that_the_newest_release_pins_was_read_and_recorded() -> None:
    assert NEWEST.flashinfer in READ
    assert set(RECORDED["verdicts"]) >= {NEWEST.flashinfer, "0.7.4"}


@pytest.mark.parametrize(
    ("version", "since"),
    [
        ("0.6.10", "0.6.11"),
        ("0.6.11.post1", "0.6.11"),
        ("0.6.14", "0.6.13"),
        ("0.6.15.post1", "0.6.15"),
        ("0.6.17", "0.6.16"),
        ("0.6.19", "0.6.18"),
        ("0.7.2.post1", "0.7.2"),
        ("1.0", "0.7.2"),
        ("main", "0.7.2"),
    ],
)
def test_a_version_takes_the_nearest_older_row(version: str, since: str) -> None:
    assert flashinfer_of(version).since == since


@pytest.mark.parametrize("version", ["0.6.10", "0.6.19", "0.8.0"])
def test_a_version_that_nobody_has_read_is_said_to_be_so(version: str, tmp_path: Path) -> None:
    assert version in (doubt_of(version) or "")
    write_ranks(cache_folder(tmp_path, version), rank_names(), good(target_of(version)))
    assert "flashinfer-unknown" in codes(verify_all(tmp_path, UNKNOWN))


def _old(member: str, value: Any, version: str) -> bytes:
    document = json.loads(serialise(target_of(version), {}, writer=flashinfer_of(version)))
    return json.dumps({**document, member: value}).encode()


@pytest.mark.parametrize(
    ("version", "member", "value", "ends"),
    [
        ("0.6.12", GENERATION, {}, "KeyError"),
        ("0.6.17", GENERATION, {}, "KeyError"),
        ("0.6.18", GENERATION, {}, "loaded"),
        ("0.6.12", "_metadata", [], "AttributeError"),
        ("0.6.15.post1", "_metadata", [], "soft"),
        ("0.6.12", "key", [7, 1], "loaded"),
        ("0.6.17", "key", [7, 1], "AttributeError"),
        ("0.6.18", "key", ["R", 1, 7], "loaded"),
        ("0.7.1", "key", ["R", 1, 7], "TypeError"),
        ("0.6.15.post1", "key", ["CudnnRunner", 3], "loaded"),
        ("0.6.17", "key", ["CudnnRunner", 3], "skipped"),
        ("0.6.17", "_records", [], "IndexError"),
        ("0.6.18", "_records", [], "ValueError"),
    ],
)
def test_what_an_odd_file_does_goes_by_the_version(version: str, member: str, value: Any, ends: str) -> None:
    outcome = load(_old(member, value, version), target_of(version), flashinfer_of(version))
    if isinstance(outcome, Raised):
        assert outcome.exception == ends
    elif isinstance(outcome, Ignored):
        assert (ends, outcome.hard) == ("soft", {})
    else:
        assert isinstance(outcome, Loaded) and ends == ("skipped" if outcome.skipped else "loaded")


@pytest.mark.parametrize(
    ("version", "save", "verdict"),
    [("0.6.14", Save.MERGED, "ignored"), ("0.6.15.post1", Save.REPLACED, "replaced")],
)
def test_since_0_6_15_the_unknown_heals(version: str, save: Save, verdict: str, tmp_path: Path) -> None:
    target = target_of(version)
    raw = good({**target, "cudnn_version": "unknown"})
    assert next_save(raw, target, flashinfer_of(version)) is save
    write_ranks(cache_folder(tmp_path, version), rank_names(), raw)
    assert verdicts(verify_all(tmp_path, Target(target, "x", version))) == [verdict]


def test_a_file_in_a_versions_folder_is_judged_by_that_version(tmp_path: Path) -> None:
    """A file that crashes 0.6.12 is harmless to 0.6.18. No server's version is given."""
    for version, verdict in (("0.6.12", "crash"), ("0.6.18", "hit")):
        root = tmp_path / version
        raw = _old(GENERATION, {}, version)
        row = flashinfer_of(version)
        entries = {OLD_KEY if not row.has_extras else moe_key(1): ["MoERunner", 3]}
        content = json.dumps({**json.loads(raw), **entries}).encode()
        write_ranks(cache_folder(root, version), rank_names(), content)
        assert verdicts(verify_all(root, UNKNOWN)) == [verdict], version


def test_a_file_that_an_old_version_wrote_has_nothing_to_be_blamed_for(tmp_path: Path) -> None:
    raw = serialise(target_of("0.6.12"), {OLD_KEY: ["MoERunner", 3]}, writer=flashinfer_of("0.6.12"))
    write_ranks(cache_folder(tmp_path, "0.6.12"), rank_names(), raw)
    report = verify_all(tmp_path, Target(target_of("0.6.12"), "x", "0.6.12"))
    assert (verdicts(report), codes(report)) == (["hit"], set())


def test_another_runner_in_a_value_gets_the_tactic_before_0_6_16(tmp_path: Path) -> None:
    for version, code in (("0.6.15.post1", "runner-exchanged"), ("0.6.17", "runner-mismatch")):
        raw = serialise(target_of(version), {moe_key(1): ["OtherRunner", 3]}, writer=flashinfer_of(version))
        write_ranks(cache_folder(tmp_path / version, version), rank_names(), raw)
        assert codes(verify_all(tmp_path / version, Target(target_of(version), "x", version))) == {code}


def test_a_runner_that_no_set_can_hold_kills_a_lookup_before_0_6_16(tmp_path: Path) -> None:
    for version in ("0.6.12", "0.6.15.post1"):
        key = moe_key(1) if flashinfer_of(version).has_extras else OLD_KEY
        raw = serialise(target_of(version), {key: [["MoERunner"], 3]}, writer=flashinfer_of(version))
        write_ranks(cache_folder(tmp_path / version, version), rank_names(), raw)
        report = verify_all(tmp_path / version, Target(target_of(version), "x", version))
        assert verdicts(report) == ["crash"] and "entry-kills-loader" in codes(report)


@pytest.mark.parametrize("version", ["0.6.12", "0.6.18", "0.7.2"])
def test_the_writer_leaves_what_the_target_would_leave(version: str, tmp_path: Path) -> None:
    target, row = target_of(version), flashinfer_of(version)
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    path.write_bytes(serialise(target, {"a": ["R", 1]}, writer=row))
    write_group([path], {"b": ["R", [1, 2]]}, target)
    assert path.read_bytes() == serialise(target, {"a": ["R", 1], "b": ["R", [1, 2]]}, writer=row)


def test_members_that_would_kill_an_old_reader_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    path.write_bytes(_old("_records", {"megamoe": {}}, "0.6.12"))
    written = write_group([path], {"b": ["R", 1]}, target_of("0.6.12"))
    assert json.loads(path.read_bytes()).keys() == {"_metadata", "b"}
    assert "would crash the server" in written.notes[0]
