"""A record as a report: its verdict, what SGLang said, what was not exact, and which ranks it is of."""

import json
from dataclasses import replace

import pytest

from runtime.record.record import Record
from runtime.server.units import GIB, MIB
from sgl_tune.cli.out import to_json
from sgl_tune.memory.parts import beyond_peak
from sgl_tune.memory.starting import Layout, first_rank
from sgl_tune.memory.views.tables import exactness, failure_text, verdict
from tests.sgl_tune.memory.records import (
    GUESS,
    OOM,
    OUTSIDE,
    TOTAL,
    died,
    made,
    phase,
    ready,
    refused,
    report,
)
from tests.sgl_tune.schemas import schema_faults

DRIVERS = "CUDA error: out of memory"


def published(record: Record) -> None:
    data = json.loads(to_json({"schema_version": 2, "sweep": {}, **report(record).to_json()}))
    assert schema_faults("mem-report", data) == []


def test_a_ready_start_fits_and_is_exact() -> None:
    found = report(ready())
    assert found.verdict == "fits" and verdict(found)[0].startswith("FITS: ")
    assert exactness(found).startswith("exact (what torch counts up to ready")
    assert [one.name for one in found.phases] == [
        *("communicator", "weights", "kv pool", "graphs", "eager buffers")
    ], "the phase around all others is not shown, and an inner one stands below the one around it"
    assert found.sizes.kv_tokens == 914_039
    published(ready())


def test_what_was_not_exact_is_named_with_its_phase() -> None:
    assert exactness(report(ready(GUESS))) == "not exact: fused_moe_90 in autotune: no module"
    published(ready(GUESS))


def test_part_of_the_command_that_was_left_out_is_named_without_a_phase() -> None:
    left = {**GUESS, "kind": "command", "name": "--lora-paths", "phase": "", "why": "it is no folder"}
    assert report(ready(left)).trust.inexact == ("--lora-paths of the command was not used: it is no folder",)


def test_kernels_that_are_timed_anew_are_noted() -> None:
    def looked(name: str, found: bool) -> dict[str, object]:
        return {"event": "file", "store": "torch.compile", "path": name, "found": found}

    assert report(ready(looked("a", found=True))).trust.notes == ()
    (note,) = report(ready(looked("a", found=True), looked("b", found=False))).trust.notes
    assert note.startswith("torch.compile's cache is assumed to be empty: with 1 kernel there a server")


def test_what_is_taken_of_a_host_with_peers_is_noted() -> None:
    def communicators(count: int, ranks: int = 4) -> dict[str, object]:
        return {"event": "outside", "phase": "communicator", f"communicators_{ranks}": count}

    assert report(ready(communicators(0))).trust.notes == ()
    (note,) = report(ready(communicators(1))).trust.notes
    assert note.startswith("the host's NVLink multicast is assumed to be off")
    extrapolated, _ = report(ready(communicators(1, ranks=8))).trust.notes
    assert extrapolated == "NCCL was measured on 2 and 4 GPUs: its bytes and ± for 8 ranks are extrapolated"


def test_what_the_cage_lacks_is_published() -> None:
    whole = ready()
    record = replace(whole, asked=replace(whole.asked, lacking=("network: no namespace",)))
    assert report(record).to_json()["cage_lacks"] == ["network: no namespace"]
    assert report(whole).to_json()["cage_lacks"] == []
    published(record)


def test_out_of_memory_is_said_in_the_words_of_torch_with_the_stack_of_sglang() -> None:
    found = report(died())
    assert found.verdict == "oom" and found.oom is not None
    assert verdict(found)[0] == (
        "OUT OF MEMORY in autotune: tried 6.38 GiB, 2.98 GiB free (±6 MiB), 135.00 GiB allocated"
    )
    assert failure_text(found).startswith("CUDA out of memory. Tried to allocate 6.38 GiB")
    assert found.stack == (
        "sglang/srt/model_executor/model_runner.py:900 kernel_warmup",
        "sglang/srt/layers/logits_processor.py:700 _get_logits",
    )
    assert found.oom.where == "srt/layers/logits_processor.py:700 _get_logits"
    published(died())


def test_out_of_memory_inside_the_error_bar_says_so() -> None:
    text = OOM.replace("2.98 GiB is free", "6.376 GiB is free")
    found = report(died(text=text))
    assert verdict(found)[0] == (
        "OUT OF MEMORY, inside the error bar, in autotune: "
        "tried 6.38 GiB, 6.38 GiB free (±6 MiB), 135.00 GiB allocated"
    )
    oom = found.to_json()["oom"]
    assert oom["is_inside_error_bar"] and oom["missing_bytes"] < oom["margin_bytes"] == 6 << 20
    assert not report(died()).to_json()["oom"]["is_inside_error_bar"]


def test_a_refusal_of_the_driver_is_out_of_memory_without_a_size() -> None:
    found = report(died("AcceleratorError", f"{DRIVERS}\nFor debugging consider passing X=1"))
    assert (found.verdict, failure_text(found)) == ("oom", DRIVERS)
    assert verdict(found)[0].startswith(
        "OUT OF MEMORY in autotune: the driver refused, 3.39 GiB free (±6 MiB)"
    )
    oom = found.to_json()["oom"]
    assert (oom["tried_bytes"], oom["missing_bytes"], oom["by_driver"]) == (None, None, True)
    published(died("AcceleratorError", DRIVERS))


def test_prefill_graphs_that_were_not_captured_are_told() -> None:
    assert report(ready(phase("prefill graphs", 128, 128.25, 129, 129))).trust.warnings == ()
    (note,) = report(ready(phase("prefill graphs", 128, 128, 128, 128))).trust.warnings
    assert note.startswith("no prefill graphs were captured")


def test_another_end_is_the_exception_of_sglang_with_its_stack() -> None:
    found = report(died("TypeError", "forward() takes 4 arguments"))
    assert (found.verdict, verdict(found)[0]) == ("failed", "FAILED in autotune")
    assert failure_text(found) == "TypeError: forward() takes 4 arguments"
    assert found.stack


def test_an_end_outside_of_every_step_is_a_failure_too() -> None:
    event = {"event": "died", "phase": "start", "type": "ValueError", "text": "no", "stack": []}
    found = report(made(event))
    assert found.verdict == "failed" and found.total_bytes


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            "SystemExit",
            "usage: x\nx: error: unrecognized arguments: --bogus",
            "x: error: unrecognized arguments: --bogus",
        ),
        ("ValueError", "page size 3 is not supported", "ValueError: page size 3 is not supported"),
        ("SystemExit", "", "SGLang refused the command without a word"),
    ],
)
def test_a_refusal_is_in_the_words_of_sglang(kind: str, text: str, said: str) -> None:
    found = report(refused(kind, text))
    assert (found.verdict, found.refused) == ("refused", said)
    assert verdict(found)[0] == f"REFUSED by SGLang: {said}" and exactness(found) == ""
    published(refused(kind, text))


def test_ranks_have_the_names_of_the_log() -> None:
    assert Layout().name(0) == "TP0"
    assert Layout(tp=8, dp=4).name(5) == "DP2 TP5"
    assert Layout(tp=2, pp=3).name(4) == "PP2 TP0"
    assert report(ready(tp_size=8, dp_size=8, enable_dp_attention=True)).whose.rank_name == "DP0 TP0"
    assert report(ready(tp_size=2, dp_size=4)).whose.rank_name == "TP0", "without DP attention dp is replicas"


@pytest.mark.parametrize(
    ("asked", "layout", "ranks"),
    [
        ("distinct", Layout(tp=8, dp=8), (0,)),
        ("distinct", Layout(tp=2, pp=2), (0, 2)),
        ("distinct", Layout(tp=2, pp=8), (0, 2, 8, 14)),
        ("all", Layout(tp=2, pp=2), (0, 1, 2, 3)),
        ("3", Layout(tp=2, pp=2), (3,)),
    ],
)
def test_the_ranks_that_differ_are_started(asked: str, layout: Layout, ranks: tuple[int, ...]) -> None:
    assert layout.started(asked) == ranks
    assert first_rank(asked) == (3 if asked == "3" else 0)


def test_a_row_adds_up_to_the_gpu() -> None:
    for one in report(ready()).phases:
        cached, outside = beyond_peak(one, TOTAL)
        assert cached == one.reserved_peak_bytes - one.peak_bytes and outside == OUTSIDE < GIB
        assert one.peak_bytes + cached + outside + one.free_at_peak_bytes == TOTAL


def test_what_comes_outside_torch_after_its_peak_is_not_counted_at_the_peak() -> None:
    early = phase("decode graphs", 100, 101, 138, 139)
    later = {**early, "reserved": early["reserved"] - GIB, "free": early["free"] + GIB - 512 * MIB}
    one = report(ready(later)).phase("decode graphs")
    assert one is not None and one.free_at_peak_bytes == early["least_free"] == TOTAL - OUTSIDE - 139 * GIB
    cached, outside = beyond_peak(one, TOTAL)
    assert (cached, outside) == (GIB - 512 * MIB, OUTSIDE + 512 * MIB)


def test_what_the_start_did_not_settle_is_noted() -> None:
    unsettled = {"event": "lacks", "what": "settled", "why": "KeyError: pool"}
    assert report(ready(unsettled)).trust.notes == ("the record does not have: settled: KeyError: pool",)
