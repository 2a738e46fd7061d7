"""The loader's rules, case by case; tests/stock holds the same corpus against FlashInfer itself."""

import json
from typing import Any

import pytest

from runtime.flashinfer.versions import NEWEST
from sgl_tune.cache.loader import Ignored, Loaded, Raised, Save, metadata_mismatches, next_save
from sgl_tune.cache.record import serialise
from tests.sgl_tune.cache.corpus import HOT, TARGET, Case, build_corpus, moe_entries, moe_key
from tests.sgl_tune.cache.predictions import load

CORPUS = build_corpus(TARGET, moe_entries())


def _verdict(raw: bytes) -> str:
    outcome = load(raw, TARGET, NEWEST)
    if isinstance(outcome, Raised):
        return outcome.exception
    if isinstance(outcome, Ignored):
        return "hard" if outcome.hard else "soft"
    return "loaded"


@pytest.mark.parametrize(("name", "case"), CORPUS.items(), ids=CORPUS)
def test_every_case_ends_as_the_corpus_says(name: str, case: Case) -> None:
    assert _verdict(case.raw) == case.loads


def test_a_loaded_table_holds_runner_tactic_and_policy() -> None:
    outcome = load(serialise(TARGET, {moe_key(1): ["MoERunner", [1, [2, 3]], HOT]}), TARGET, NEWEST)
    assert isinstance(outcome, Loaded)
    assert outcome.entries == {moe_key(1): ("MoERunner", (1, (2, 3)))}
    assert outcome.policies == {moe_key(1): tuple(HOT)}


def test_a_string_value_is_indexed_by_position() -> None:
    outcome = load(b'{"k": "Foo"}', TARGET, NEWEST)
    assert outcome == Loaded({"k": ("F", "o")}, {"k": ("o",)}, ())


def test_an_integer_plan_of_cudnn_is_skipped_before_its_policy_is_read() -> None:
    outcome = load(b'{"k": ["CudnnRunner", 0, 5], "j": ["CudnnRunner", -1]}', TARGET, NEWEST)
    assert outcome == Loaded({"j": ("CudnnRunner", -1)}, {}, ("k",))


def test_the_entry_that_kills_the_loader_is_named() -> None:
    outcome = load(b'{"fine": ["R", 1], "bad": [1]}', TARGET, NEWEST)
    assert isinstance(outcome, Raised) and outcome.key == "bad"


@pytest.mark.parametrize(
    ("saved", "hard", "soft"),
    [
        ({"gpu": "A", "cudnn_version": "9"}, [], []),
        ({"gpu": "B", "cudnn_version": "9"}, ["gpu"], []),
        ({"gpu": "*", "cudnn_version": "unknown"}, [], ["cudnn_version"]),
        ({"gpu": "B"}, ["gpu"], ["cudnn_version"]),
        ([], [], ["gpu", "cudnn_version"]),
        ({"gpu": ["A"], "cudnn_version": {}}, ["gpu", "cudnn_version"], []),
    ],
)
def test_mismatches_are_sorted_by_severity(saved: Any, hard: list[str], soft: list[str]) -> None:
    found_hard, found_soft = metadata_mismatches(saved, {"gpu": "A", "cudnn_version": "9"}, NEWEST)
    assert (list(found_hard), list(found_soft)) == (hard, soft)


def test_a_field_unknown_on_both_sides_matches() -> None:
    assert metadata_mismatches({"gpu": "unknown"}, {"gpu": "unknown"}, NEWEST) == ({}, {})


@pytest.mark.parametrize(
    ("name", "save"),
    [
        ("good", Save.MERGED),
        ("metadata-missing", Save.MERGED),
        ("entry-int", Save.MERGED),
        ("records-list", Save.MERGED),
        ("other-gpu", Save.SKIPPED),
        ("metadata-hard-and-soft", Save.SKIPPED),
        ("cudnn-unknown", Save.REPLACED),
        ("metadata-empty", Save.REPLACED),
        ("truncated", Save.REPLACED),
        ("byte-order-mark", Save.REPLACED),
        ("top-level-list", Save.REPLACED),
        ("top-level-null", Save.REPLACED),
        ("gzip", "UnicodeDecodeError"),
        ("number-of-5000-digits", "ValueError"),
        ("nesting-100000", "RecursionError"),
    ],
)
def test_the_next_save_merges_skips_or_replaces_as_flashinfer_would(name: str, save: Save | str) -> None:
    outcome = next_save(CORPUS[name].raw, TARGET, NEWEST)
    assert (outcome.exception if isinstance(outcome, Raised) else outcome) == save


def test_the_corpus_is_good_but_for_its_one_fault() -> None:
    assert json.loads(CORPUS["good"].raw)["_metadata"] == TARGET
    assert len({case.raw for case in CORPUS.values()}) == len(CORPUS)
