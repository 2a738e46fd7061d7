"""FlashInfer 0.7.4 writes beside a policy how its tactic was chosen: that is read, judged and kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.flashinfer.versions import flashinfer_of
from sgl_tune.cache.loader import Ignored, Loaded, next_save
from sgl_tune.cache.record import serialise
from sgl_tune.verify.environment import Target
from sgl_tune.warm.worker import usable_entries
from tests.sgl_tune.cache import caches
from tests.sgl_tune.cache.corpus import CHOSEN, HOT, build_chosen, moe_entries, moe_key, target_of
from tests.sgl_tune.cache.predictions import load
from tests.sgl_tune.running import run

THERE = target_of("0.7.4")
SERVER = Target(THERE, "test")
CASES = build_chosen(THERE, moe_entries())
HEALTHY = CASES["chosen"].raw


def _cache(root: Path, raw: bytes = HEALTHY, ranks: int = 1) -> Path:
    folder = caches.cache_folder(root, "0.7.4")
    caches.write_ranks(folder, caches.rank_names(tp=ranks), raw)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_file_loads_and_dies_as_under_the_real_loader(name: str) -> None:
    outcome = load(CASES[name].raw, THERE, flashinfer_of("0.7.4"))
    assert not isinstance(outcome, Ignored)
    assert CASES[name].loads == ("loaded" if isinstance(outcome, Loaded) else outcome.exception)
    assert next_save(CASES[name].raw, THERE, flashinfer_of("0.7.4"))


@pytest.mark.parametrize("name", ["chosen", "chosen-alone", "chosen-number", "chosen-list", "five-elements"])
def test_a_file_is_a_hit_and_what_no_flashinfer_writes_is_malformed(name: str, tmp_path: Path) -> None:
    _cache(tmp_path, CASES[name].raw)
    report, is_healthy = caches.verify_all(tmp_path, SERVER), name in ("chosen", "chosen-alone")
    assert caches.verdicts(report) == ["hit"] and report.ok(strict=False)
    assert ("value-malformed" not in caches.codes(report)) == is_healthy


@pytest.mark.parametrize(
    "tactic", [float("nan"), float("inf"), float("-inf"), {"tile": 1}, None, [float("nan")], 1 << 31]
)
@pytest.mark.parametrize("beside", [[], [HOT], [HOT, CHOSEN], [HOT, 7], [HOT, CHOSEN, 5]])
def test_a_tactic_of_no_kernel_is_bad_beside_anything(tactic: Any, beside: list[Any], tmp_path: Path) -> None:
    entries = {**moe_entries(), moe_key(1): ["MoERunner", tactic, *beside]}
    _cache(tmp_path, serialise(THERE, entries))
    report = caches.verify_all(tmp_path, SERVER)
    assert "tactic-unusable" in caches.codes(report) and not report.ok()


def test_a_pack_takes_it_and_an_unpack_gives_it_back(tmp_path: Path) -> None:
    _cache(tmp_path / "from", ranks=2)
    bundle = tmp_path / "bundle.tar.gz"
    assert run("pack", tmp_path / "from", "-o", bundle).ends(0)
    assert run("unpack", bundle, "--cache-dir", tmp_path / "to").code == 0
    (path, *_) = sorted((tmp_path / "to").rglob("rank_*.json"))
    assert path.read_bytes() == HEALTHY


def json_of(raw: bytes) -> dict[str, Any]:
    return {key: value for key, value in json.loads(raw).items() if not key.startswith("_")}


def test_an_export_refuses_a_tactic_that_no_kernel_takes(tmp_path: Path) -> None:
    folder = _cache(tmp_path, CASES["chosen-tactic-nan"].raw)
    assert run("export", folder, "--to", "vllm", "-o", tmp_path / "vllm").ends(1, "no kernel can take")


def test_a_diff_of_times_alone_says_that_the_choice_is_the_same(tmp_path: Path) -> None:
    again = {key: [*value[:3], {**CHOSEN, "time_ms": 0.02}] for key, value in json_of(HEALTHY).items()}
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_bytes(HEALTHY)
    other.write_bytes(serialise(THERE, again))
    done = run("diff", one, other, "--format", "json")
    (pair,) = json.loads(done.out)["pairs"]
    assert done.code == 1 and pair["noise"] and {change["apart"] for change in pair["changed"]} == {0}
    assert run("diff", one, other, "--ignore-noise").code == 0
    assert "time_ms" in run("diff", one, other).out


def test_a_warm_tunes_again_what_no_kernel_takes(tmp_path: Path) -> None:
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    path.write_bytes(CASES["chosen-tactic-nan"].raw)
    found = usable_entries([path], THERE, replacing=False)
    assert moe_key(1) not in found and found[moe_key(2)][3] == CHOSEN


@pytest.mark.parametrize("value", [7, None, "x", [1, [2]], {"graph": [1, 2], "nan": False}])
def test_a_protocol_record_is_no_lookups_entry_and_is_good(value: Any, tmp_path: Path) -> None:
    caches.add_entry(
        caches.managed_store(tmp_path), "('__protocol__', 'pcie_ipc_ar', 'bf16:8')", "pcie_ipc_ar", value
    )
    report = caches.verify_all(tmp_path, SERVER)
    assert caches.verdicts(report) == ["hit"] and caches.codes(report) <= {"flashinfer-unknown"}


@pytest.mark.parametrize(
    ("key", "runner"),
    [
        ("('__protocol__', 'ns', 'k')", "other"),
        ("('__protocol__', '', 'k')", ""),
        ("('__protocol__', 'ns', 7)", "ns"),
        ("('__protocol__', 'ns')", "ns"),
        ("('__protocol__', 'ns', 'k', 1)", "ns"),
    ],
)
def test_a_protocol_record_that_no_reader_accepts_is_a_miss(key: str, runner: str, tmp_path: Path) -> None:
    caches.add_entry(caches.managed_store(tmp_path), key, runner)
    report = caches.verify_all(tmp_path, SERVER)
    assert caches.verdicts(report) == ["ignored"] and "managed-entry-invalid" in caches.codes(report)


def test_a_key_of_an_unknown_flashinfer_is_not_told_to_be_removed(tmp_path: Path) -> None:
    _cache(tmp_path, serialise(THERE, {**moe_entries(), "('new', 'form')": ["R", 1, HOT]}))
    (found,) = (one for file in caches.verify_all(tmp_path, SERVER).files for one in file.findings)
    assert found.code == "key-unreadable" and "remove" not in found.remedy and "newer" in found.remedy
