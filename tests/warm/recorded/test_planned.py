"""The plan that records make: caches, files, groups, and what cannot be replayed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.record.events import record_of
from runtime.record.record import Record
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from tests.record.test_calls import CALL
from tests.record.test_record import ASKED, ENDED, READY

FOLDER = "flashinfer/autotune/0.7.2/sm90/0123456789abcdef"
NAMED, LOOKED_FOR = "flashinfer tactics of the ranks", "flashinfer tactics"
OWN = "flashinfer tactics of this rank"


def named(rank: str, phase: str = "autotune", store: str = NAMED, folder: str = FOLDER) -> dict[str, Any]:
    path = f"/work/home/.cache/sglang/{folder}/rank_{rank}.json"
    return {"event": "file", "store": store, "path": path, "found": False, "phase": phase}


def call(key: str, mode: str = "tune", phase: str = "autotune", **changed: Any) -> dict[str, Any]:
    lookup = {"op": "op", "runners": ["Runner"], "keys": [[8, key]], "policy": []}
    return {**CALL, "mode": mode, "phase": phase, "lookups": [lookup], **changed}


def asked(**arguments: Any) -> dict[str, Any]:
    return {"event": "asked", "arguments": arguments}


def planned(*records: Record) -> RecordedPlan:
    return plan_of(records, Whose("m", "org/m", Path("/c"), ("--model-path", "org/m")), 1)


def record(*events: dict[str, Any], rank: int = 0) -> Record:
    return record_of(replace(ASKED, rank=rank), [*events, READY, ENDED])


def test_files_are_named_by_the_server_and_hold_what_all_ranks_ask_for() -> None:
    stages = [named(f"tp{tp}_pp{pp}_dp0") for pp in range(2) for tp in range(2)]
    own = named("tp0_pp0_dp0", store=LOOKED_FOR, folder=FOLDER.replace("0123", "9999"))
    first = record(asked(pp_size=2), own, *stages, call("a"))
    plan = planned(first, record(asked(pp_size=2), *stages, call("a"), call("b"), rank=2))
    (cache,) = plan.caches
    assert cache.key == "0123456789abcdef" and len(cache.paths) == 4
    assert [len(group) for group in cache.groups] == [2, 2]
    assert cache.ops[0].keys == ("a", "b") and plan.exit_code == 0
    assert plan.says == "tunes 1 op, 2 entries in 4 files"


def test_servers_side_by_side_are_groups_of_their_own() -> None:
    files = [named(f"tp{tp}_pp0_dp{dp}") for dp in range(2) for tp in range(2)]
    beside = planned(record(asked(enable_dp_attention=False), *files, call("a")))
    assert [len(group) for group in beside.caches[0].groups] == [2, 2]
    ranks = [named(f"tp{rank}_pp0_dp{rank}") for rank in range(4)]
    attention = planned(record(asked(enable_dp_attention=True), *ranks, call("a")))
    assert [len(group) for group in attention.caches[0].groups] == [4]


def test_a_draft_has_a_cache_of_its_own() -> None:
    other = FOLDER.replace("0123", "4567")
    draft = named("tp0_pp0_dp0", phase="draft autotune", folder=other)
    made = record(asked(), named("tp0_pp0_dp0"), call("a"), draft, call("b", phase="draft autotune"))
    target, drafts = planned(made).caches
    assert target.ops[0].keys == ("a",) and drafts.ops[0].keys == ("b",)
    assert drafts.key.startswith("4567") and planned(made).to_json()["draft"]["key"] == drafts.key


def test_a_drafts_calls_are_told_by_the_file_that_was_open() -> None:
    """SGLang's own step does not say which model it belongs to."""
    other = FOLDER.replace("0123", "4567")
    files = [
        {**named("tp0_pp0_dp0", store=OWN, folder="made/target"), "phase": "autotune"},
        {**named("tp0_pp0_dp0", store=OWN, folder="made/draft"), "phase": "draft autotune"},
    ]
    named_files = [named("tp0_pp0_dp0"), named("tp0_pp0_dp0", phase="draft autotune", folder=other)]
    tuned = [call("a", cache=files[0]["path"]), call("b", cache=files[1]["path"])]
    served = call("c", mode="serve", phase="draft decode graphs")
    target, draft = planned(record(asked(), *files, *named_files, *tuned, served)).caches
    assert target.ops[0].keys == ("a",) and draft.ops[0].keys == ("b", "c")
    assert draft.key.startswith("4567")


def test_what_cannot_be_replayed_is_named() -> None:
    odd = call("b", unreplayable="it was given a.Plan")
    plan = planned(record(asked(), named("tp0_pp0_dp0"), call("a"), odd))
    assert plan.caches[0].ops[0].keys == ("a",)
    assert plan.exit_code == 1 and "cutlass_fused_moe cannot be replayed: it was given a.Plan" in plan.says
    assert plan.to_json()["not_replayable"] == [{"function": CALL["function"], "why": "it was given a.Plan"}]
    alone = planned(record(asked(), named("tp0_pp0_dp0"), odd))
    assert not alone.caches and alone.says.startswith("tunes what cannot be planned")


def test_a_start_that_asks_nothing_tunes_nothing() -> None:
    plan = planned(record(asked(), named("tp0_pp0_dp0")))
    assert plan.says.startswith("tunes nothing") and plan.exit_code == 0
    assert plan.to_json()["files"] == [] and plan.to_json()["verdict"]["tunes"] == "nothing"


def test_files_named_by_a_gpu_are_not_written() -> None:
    plan = planned(record(asked(), named("tp0_pp0_dp0_gpuGPU-1"), call("a")))
    assert plan.obstacle is not None and plan.exit_code == 1


def test_reasons_of_all_ranks_make_a_plan_inexact() -> None:
    reason = {"event": "inexact", "kind": "stub", "name": "f", "phase": "autotune", "frame": "", "why": "w"}
    exact = record(asked(), named("tp0_pp0_dp0"), call("a"))
    assert planned(exact).exact and planned(exact).notes[1].endswith("planned are op up to 8")
    other = record(asked(), reason, named("tp0_pp0_dp0"), call("a"), rank=1)
    assert [one.name for one in planned(exact, other).inexact] == ["f"]
    silent = record({**reason, "kind": "tuner", "name": "flashinfer.x"}, named("tp0_pp0_dp0"), call("a"))
    assert planned(silent).says.endswith("; what flashinfer.x tunes: not known: w")


DIED = {"event": "died", "phase": "draft weights", "type": "OutOfMemoryError", "text": "", "stack": []}


def test_a_start_that_ended_early_makes_no_whole_plan() -> None:
    """The calls that it tuned are planned, but a draft or a graph may ask for more."""
    cut = record_of(ASKED, [asked(), named("tp0_pp0_dp0"), call("a"), DIED, ENDED])
    plan = planned(cut)
    assert plan.caches[0].ops[0].keys == ("a",)
    assert plan.exit_code == 1 and not plan.exact and plan.verdict.tunes == "unplanned"
    ended = "its start ended in draft weights: OutOfMemoryError"
    assert f"what rank 0 asks for later: not known: {ended}" in plan.says


def test_what_is_tuned_into_no_known_file_is_named() -> None:
    plan = planned(record(asked(), call("a")))
    assert plan.exit_code == 1 and not plan.caches
    assert plan.says == (
        "tunes what cannot be planned: the files: not known: SGLang named none that a later start reads"
    )
    draft = planned(record(asked(), named("tp0_pp0_dp0"), call("a"), call("b", phase="draft autotune")))
    assert draft.exit_code == 1 and "the files of the draft: not known" in draft.says


def test_ranks_with_other_folders_make_no_plan() -> None:
    other = named("tp1_pp0_dp0", folder=FOLDER.replace("0123", "9999"))
    plan = planned(
        record(asked(), named("tp0_pp0_dp0"), call("a")), record(asked(), other, call("a"), rank=1)
    )
    assert plan.exit_code == 1 and not plan.caches and "2 folders" in plan.says


def test_files_of_the_started_ranks_alone_are_not_all() -> None:
    plan = planned(record(asked(tp_size=8), named("tp0_pp0_dp0", store=LOOKED_FOR), call("a")))
    assert plan.exit_code == 1 and "did not answer for the others" in plan.says


def test_a_server_that_only_looks_up_tunes_nothing() -> None:
    plan = planned(record(asked(), call("a", mode="serve")))
    assert plan.exit_code == 0 and plan.says == "tunes nothing: this server's start did not tune"


@pytest.mark.parametrize(
    "path",
    [
        "/home/flashinfer/autotune/../../../rank_tp0_pp0_dp0.json",
        "/home/flashinfer/autotune/0.7.2/sm90/../rank_tp0_pp0_dp0.json",
        f"/home/{FOLDER}/rank_tp0_pp0_dp0.json/..",
        f"/home/{FOLDER}/authorized_keys",
        "/etc/passwd",
        "rank_tp0_pp0_dp0.json",
        "",
    ],
)
def test_a_foreign_record_names_no_file_outside_the_cache(path: str) -> None:
    plan = planned(record(asked(), {**named("tp0_pp0_dp0"), "path": path}, call("a")))
    assert not plan.caches and plan.exit_code == 1
