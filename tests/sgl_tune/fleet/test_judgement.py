"""What a node's line comes to on another machine is what `verify` says on that node."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.record import serialise
from tests.sgl_tune.cache.corpus import TARGET, build_corpus
from tests.sgl_tune.fleet.nodes import WORDS, entries, fleet_file, judged, node, plan, warmed
from tests.sgl_tune.planning import START
from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.stores.make import triton_kernel


def _half(folder: Path) -> None:
    asked = [e.key for op in plan().target.ops for e in op.entries if e.asked_by == "tuning"]
    left = {key: value for key, value in entries().items() if key not in asked[::2]}
    for path in folder.iterdir():
        path.write_bytes(serialise(TARGET, left))


RESULTS = ROOT / "benchmarks" / "results"
CORPUS = build_corpus(TARGET, entries())
TUNES = ("ignored", "replaced", "deleted", "missing")


def _state_by_verify(cache_dir: Path) -> str:
    """What `verify` says where the files lie."""
    target = cache_dir.parent / "env.json"
    target.write_text(json.dumps(TARGET))
    ran = run_here(
        "verify", "--cache-dir", cache_dir, "--target", target, "--server", "0.5.23", "--gpu", "h200",
        *WORDS, "--format", "json",
    )  # fmt: skip
    files = [file for file in json.loads(ran.out)["files"]]
    fates = {file["verdict"] for file in files}
    found = [found for file in files if file["verdict"] in ("hit", "partial") for found in file["findings"]]
    errors = {one["code"] for one in found if one["severity"] == "error"} - {"keys-missing"}
    if "crash" in fates or errors:
        return "fails"
    tuned_at_start = any("tunes these at its start" in one["message"] for one in found)
    return "tunes" if fates & set(TUNES) or tuned_at_start else "good"


def test_every_broken_file_comes_to_what_verify_says(tmp_path: Path) -> None:
    folder = warmed(tmp_path / "caches")
    nodes, expected = [], {}
    for name, case in CORPUS.items():
        for path in folder.iterdir():
            path.write_bytes(case.raw)
        nodes.append(node(tmp_path / "caches", name))
        expected[name] = _state_by_verify(tmp_path / "caches")
    _, told = judged(fleet_file(tmp_path / "f.jsonl", *nodes))
    assert {name: row["state"] for row in told["rows"] for name in row["nodes"]} == expected
    assert set(expected.values()) == {"good", "tunes", "fails"}


def test_a_node_that_could_not_ask_is_taken_for_the_target(tmp_path: Path) -> None:
    warmed(tmp_path / "caches", cuda_version="12.9")
    blind = node(tmp_path / "caches", metadata=None, arch=None, gpus=[], sglang=None)
    path = fleet_file(tmp_path / "f.jsonl", blind)
    ran, told = judged(path)
    assert ran.code == 1 and told["rows"][0]["state"] == "unknown"
    target = fleet_file(tmp_path / "t.json", node(tmp_path / "caches", "t"))
    ran, told = judged(path, "--target", target)
    assert ran.code == 1 and told["rows"][0]["reasons"][0]["code"] == "other-environment"
    ran, told = judged(path, "--gpu", "h200", "--server", "0.5.23")
    (reason,) = told["rows"][0]["reasons"]
    assert ran.code == 1 and reason["state"] == "unknown" and reason["code"] == "target-silent"


def test_a_store_is_held_against_the_targets(tmp_path: Path) -> None:
    for name in ("full", "half"):
        warmed(tmp_path / name)
        for kernel in ("one", "two")[: 2 if name == "full" else 1]:
            triton_kernel(tmp_path / name / "triton", kernel)
    full, half = node(tmp_path / "full", "full"), node(tmp_path / "half", "half")
    target = fleet_file(tmp_path / "t.json", full)
    cold = tmp_path / "cold.json"
    cold.write_text(json.dumps({"phases": [{"store": "triton", "saves_seconds": 31.5}]}))
    ran, told = judged(fleet_file(tmp_path / "f.jsonl", full, half), "--target", target, "--cold-start", cold)
    assert ran.code == 1 and [row["state"] for row in told["rows"]] == ["compiles", "good"]
    row = told["rows"][0]
    assert row["nodes"] == ["half"] and row["reasons"][0]["message"].startswith("it lacks 1 of 2 items")
    assert row["seconds"] == {"least": 0.0, "most": 31.5, "sources": [str(cold)]}
    ran, told = judged(fleet_file(tmp_path / "f.jsonl", half))
    assert ran.code == 0 and "not known without --target" in told["verdict"]


def test_seconds_are_of_rows_that_were_measured(tmp_path: Path) -> None:
    warmed(tmp_path / "caches")
    _half(next((tmp_path / "caches").rglob("rank_*")).parent)
    row = judged(fleet_file(tmp_path / "f.jsonl", node(tmp_path / "caches")))[1]["rows"][0]
    asked = sum(e.asked_by == "tuning" for op in plan().target.ops for e in op.entries)
    searches = json.loads((RESULTS / "tuning_search.json").read_text())["shapes"].values()
    each = [
        run["seconds"] / run["entries"] for one in searches for run in one["runs"] if run["search"] == "stock"
    ]
    each += [p["seconds"] / 40 for p in _cold_start()["phases"] if p["store"] == "tactics"]
    assert row["seconds"]["least"] == pytest.approx(min(each) * asked / 2, rel=0.01)
    assert row["seconds"]["most"] == pytest.approx(max(each) * asked / 2, rel=0.01)
    sources = row["seconds"]["sources"][0]
    assert "moved_root_cutlass.json" in sources and "tuning_search.json" in sources


def _cold_start() -> dict[str, Any]:
    """Of a stock start that found nothing, as it was reported."""
    reports = json.loads((RESULTS / "moved_root_cutlass.json").read_text())["reports"]
    return dict(reports["a"])


def test_seconds_are_of_a_start_that_was_reported(tmp_path: Path) -> None:
    cold = tmp_path / "cold.json"
    cold.write_text(json.dumps(_cold_start()))
    warmed(tmp_path / "full")
    triton_kernel(tmp_path / "full" / "triton", "one")
    target = fleet_file(tmp_path / "t.json", {**node(tmp_path / "full", "full")})
    (tmp_path / "none").mkdir()
    path = fleet_file(tmp_path / "f.jsonl", node(tmp_path / "none", "none"))
    seconds = judged(path, "--target", target, "--cold-start", cold)[1]["rows"][0]["seconds"]
    told = {phase["store"]: phase["saves_seconds"] for phase in _cold_start()["phases"]}
    assert seconds["least"] == seconds["most"] == pytest.approx(told["tactics"] + told["triton"], abs=0.01)
    assert seconds["sources"] == [str(cold)]
    _half(warmed(tmp_path / "half"))
    path = fleet_file(tmp_path / "f.jsonl", node(tmp_path / "half", "half"))
    seconds = judged(path, "--cold-start", cold)[1]["rows"][0]["seconds"]
    assert seconds["least"] == seconds["most"] == pytest.approx(told["tactics"] / 2, abs=0.5)


def test_nodes_of_one_start_that_hold_different_files_are_said(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = warmed(tmp_path / name)
        if name == "b":
            other = {key: [value[0], 2, *value[2:]] for key, value in entries().items()}
            for path in folder.iterdir():
                path.write_bytes(serialise(TARGET, other))
    path = fleet_file(tmp_path / "f.jsonl", node(tmp_path / "a"), node(tmp_path / "b", "b"))
    one, two = ("verify", "--fleet", path), ("--", *START.split(), *WORDS, "--nnodes", 2)
    ran = run_here(*one, "--format", "json", *two)
    told = json.loads(ran.out)
    assert ran.code == 0 and "2 different contents among them" in told["verdict"]
    assert run_here(*one, "--strict", *two).code == 1 and judged(path, "--strict")[0].code == 0


def test_a_link_out_of_the_cache_is_not_judged(tmp_path: Path) -> None:
    folder = warmed(tmp_path / "caches")
    rank = folder / "rank_tp1_pp0_dp0.json"
    rank.rename(tmp_path / "elsewhere.json")
    rank.symlink_to(tmp_path / "elsewhere.json")
    ran, told = judged(fleet_file(tmp_path / "f.jsonl", node(tmp_path / "caches")))
    (reason,) = told["rows"][0]["reasons"]
    assert ran.code == 1 and reason["state"] == "unknown" and "it is a link to" in reason["message"]


def test_what_could_not_be_seen_matters_where_it_may_be_what_is_asked_for(tmp_path: Path) -> None:
    warmed(tmp_path / "caches")
    one = node(tmp_path / "caches", unseen=["/caches/x: Permission denied"])
    ran, told = judged(fleet_file(tmp_path / "f.jsonl", one))
    assert ran.code == 0 and told["rows"][0]["reasons"][0]["code"] == "not-readable"
    ran, told = judged(fleet_file(tmp_path / "f.jsonl", {**one, "caches": []}))
    states = {reason["state"] for reason in told["rows"][0]["reasons"]}
    assert ran.code == 1 and states == {"unknown", "tunes"}
