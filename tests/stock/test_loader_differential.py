"""Our reading of a cache file against FlashInfer's own, verdict by verdict and entry by entry."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flashinfer.autotuner.autotuner as stock
import pytest

from runtime.flashinfer.versions import NEWEST
from sgl_tune.cache.record import read_cache_file, serialise
from tests.sgl_tune.cache.corpus import COLD, HOT, TARGET, Case, build_corpus, moe_entries
from tests.stock import loader_differential

FILES = 2_000
CORPUS = build_corpus(TARGET, moe_entries())
BARE_TARGET = dict.fromkeys(NEWEST.environment, "unknown") | {"flashinfer_version": "0.7.2"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with loader_differential.pinned_environment(TARGET):
        yield tmp_path


@pytest.mark.parametrize(("name", "case"), CORPUS.items(), ids=CORPUS)
def test_the_corpus_is_judged_as_flashinfer_does(name: str, case: Case, folder: Path) -> None:
    """And as the corpus says that it does."""
    assert list(loader_differential.disagreements(name, case.raw, folder, TARGET)) == []
    path = folder / "rank.json"
    path.write_bytes(case.raw)
    found = loader_differential.stock_load(path, TARGET)
    verdict = ("hard" if found["hard"] else "soft") if found["verdict"] == "ignored" else found["verdict"]
    assert verdict == case.loads


@pytest.mark.slow
def test_thousands_of_damaged_files_are_judged_as_flashinfer_does() -> None:
    tally = loader_differential.compare(FILES, seed=1)
    assert tally.found == []
    assert tally.files == FILES
    assert all(tally.verdicts[verdict] > 25 for verdict in ("loaded", "ignored", "JSONDecodeError"))
    assert {"TypeError", "KeyError", "IndexError", "AttributeError", "ValueError", "RecursionError"} <= set(
        tally.verdicts
    )


def test_files_are_judged_alike_for_a_target_of_unknown_versions() -> None:
    assert loader_differential.compare(1_000, seed=3, target=BARE_TARGET).found == []


def test_files_are_judged_alike_for_this_machine(tmp_path: Path) -> None:
    here = stock._collect_metadata()
    for name, case in build_corpus(here, moe_entries((1, 2))).items():
        assert list(loader_differential.disagreements(name, case.raw, tmp_path, here)) == []


def test_a_wrong_reading_would_be_seen(folder: Path) -> None:
    other = {**TARGET, "gpu": "NVIDIA B200"}
    found = list(loader_differential.disagreements("good", CORPUS["good"].raw, folder, other))
    assert [disagreement.name for disagreement in found] == ["good: load", "good: save"]
    assert loader_differential.our_load(CORPUS["good"].raw, TARGET) != loader_differential.our_load(
        CORPUS["policy-cold"].raw, TARGET
    )


ENTRY_SETS = ({}, moe_entries(), {"b": ["R", [1, [2, True]], COLD], "a": ["R", -1], "é": ["R", 2, HOT]})


@pytest.mark.parametrize("entries", ENTRY_SETS)
@pytest.mark.parametrize("records", [None, {"megamoe": {"z": [1, {"b": None}], "a": 0.1}}])
def test_both_write_the_same(entries: dict[str, Any], records: dict[str, Any] | None, folder: Path) -> None:
    tuner = loader_differential.StockTuner()
    for key, (runner, tactic, *policy) in entries.items():
        tuner._file_configs[key] = (runner, stock._json_to_tactic(tactic))
        if policy:
            tuner._file_config_policies[key] = tuple(policy[0])
    tuner._namespaced_records = records or {}
    tuner.save_configs(str(folder / "rank.json"))
    assert (folder / "rank.json").read_bytes() == serialise(TARGET, entries, records)


def test_what_we_write_survives_a_merge_with_our_provenance(folder: Path) -> None:
    path = folder / "rank.json"
    path.write_bytes(serialise({**TARGET, "tool": "sgl-tune"}, {"a": ["R", 1, HOT]}))
    tuner = loader_differential.StockTuner()
    assert tuner.load_configs(str(path))
    tuner._file_configs["b"] = ("R", (2, 3))
    tuner.save_configs(str(path))
    merged = {"a": ["R", 1, HOT], "b": ["R", [2, 3]]}
    assert path.read_bytes() == serialise({**TARGET, "tool": "sgl-tune"}, merged)
    file = read_cache_file(path)
    assert file.generation == file.computed_generation
