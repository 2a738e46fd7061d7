"""Who holds the GPU: shares of a record that add up to it, whatever the start came to."""

from dataclasses import replace

import pytest

from runtime.ghost.outside import table
from runtime.record.record import Record
from runtime.server.units import GIB, MIB
from tests.sgl_tune.memory import records
from tests.sgl_tune.memory.records import ENDED, HELD, OUTSIDE, READY, TOTAL, arguments, made, phase, report

GRAPHS = phase("decode graphs", 128.5, 128.75, 129, 131, depth=2)
GREW = records.grown_outside(GRAPHS, 64 * MIB)


def shares(record: Record) -> dict[str, int]:
    return {share.what: share.bytes for share in report(record).held}


@pytest.mark.parametrize(
    "record", [records.ready(), records.died(), records.ready(GREW)], ids=["ready", "died", "graphs"]
)
def test_the_shares_add_up_to_the_gpu(record: Record) -> None:
    assert sum(shares(record).values()) == TOTAL


def test_each_step_that_passed_holds_what_it_left() -> None:
    steps = (
        phase("communicator", 0, 0, 0, 0),
        phase("weights", 0, 15, 15, 15),
        HELD,
        phase("kv pool", 15, 128, 128, 128),
        phase("eager", 128, 128.5, 130, 130.5, depth=2),
        phase("decode graphs", 128.5, 128.75, 132, 132.5, depth=2),
    )
    found = shares(made(arguments(), *steps, READY, ENDED))
    assert found["experts"] == 10 * GIB and found["attention"] == 3 * GIB
    assert found["other weights"] == GIB, "what no module holds"
    assert found["KV cache"] == 113 * GIB
    assert found["buffers"] == GIB // 2
    assert found["graphs"] == GIB // 4 and found["temporary"] == round(3.25 * GIB)
    assert found["cached by torch"] == GIB // 2
    assert found["outside torch"] == OUTSIDE


def test_phases_within_the_tightest_are_not_counted_twice() -> None:
    inner = (
        phase("eager", 128, 128.5, 130, 130.5, depth=2),
        phase("decode graphs", 128.5, 129, 130, 130.5, depth=2),
    )
    around = phase("graphs", 128, 129.5, 133, 133.5)
    found = shares(made(arguments(), phase("kv pool", 0, 128, 128, 128), *inner, around, READY, ENDED))
    assert found["graphs"] == 1.5 * GIB and found["temporary"] == 3.5 * GIB
    assert found["KV cache"] == 128 * GIB and "buffers" not in found, "they came while it ran"


def test_a_peak_within_a_phase_is_that_of_the_inner_one() -> None:
    grown = phase("prefill graphs", 128, 129, 133, 133.5, depth=2)
    around = records.grown_outside(phase("graphs", 128, 129.5, 133, 133.5), 64 * MIB)
    record = made(arguments(), phase("kv pool", 0, 128, 128, 128), grown, around, READY, ENDED)
    at = report(record).tightest
    assert at is not None and at.name == "prefill graphs"


def test_what_a_draft_gives_back_is_taken_from_its_embeddings() -> None:
    held = {"event": "held", "phase": "draft weights", "bytes": {"embeddings": 2 * GIB, "mlp": GIB}}
    steps = (
        phase("weights", 0, 15, 15, 15),
        HELD,
        phase("draft weights", 15, 18, 18, 18),
        held,
        phase("kv pool", 16, 128, 128, 128.5),
    )
    found = shares(made(arguments(), *steps, READY, ENDED))
    assert found["embeddings"] == GIB and found["mlp"] == GIB and min(found.values()) > 0
    assert sum(found.values()) == TOTAL


def test_what_grew_outside_while_graphs_were_captured_is_theirs() -> None:
    graphs = records.grown_outside(phase("decode graphs", 100, 100, 130, 130), 64 * MIB)
    record = made(arguments(), phase("kv pool", 0, 100, 100, 100), graphs, READY, ENDED)
    assert shares(record)["graphs outside torch"] == 64 * MIB
    assert shares(record)["outside torch"] == OUTSIDE


def test_communicators_are_nccls_share() -> None:
    two = table().communicator(2).bytes + table().numbers["first"].bytes
    found = shares(replace(records.ready(), counted={"communicators_1": 3, "communicators_2": 1}))
    assert found["NCCL"] == min(two, OUTSIDE) and sum(found.values()) == TOTAL


def test_what_other_processes_hold_is_a_share_of_its_own() -> None:
    found = {share.what: share.bytes for share in report(records.ready(), taken_bytes=100 * MIB).held}
    assert found["other processes"] == 100 * MIB and sum(found.values()) == TOTAL


def test_a_refused_start_holds_nothing() -> None:
    found = report(records.refused("ValueError", "no"))
    assert found.tightest is None and found.held == ()


def test_the_parts_of_every_phase_add_up_to_the_gpu() -> None:
    for found in (report(records.ready(GREW)), report(records.died())):
        assert all(sum(share.bytes for share in parts) == TOTAL for parts in found.parts)
