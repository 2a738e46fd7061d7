"""What would help a server that ran out of memory: whole starts, the mildest of each kind, not for long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.units import GIB, MIB
from runtime.sglang.releases import NEWEST
from sgl_tune.memory.ghost.of_record import report_of
from sgl_tune.memory.ghost.ranks import Layout
from sgl_tune.memory.ghost.remedies import attempts_for, helpful
from sgl_tune.memory.report import MemoryReport, Sizes
from tests.sgl_tune.memory.records import ENDED, TOTAL, arguments, died, made, phase, reading, ready


def report(fraction: float = 0.9, chunk: int = 8192) -> MemoryReport:
    """It died in autotune, where 3.40 of 140 GiB were missing."""
    found = report_of(died(), "h200", TOTAL, "m", 100 * MIB)
    return replace(found, sizes=Sizes(mem_fraction_static=fraction, chunked_prefill_size=chunk))


class Server:
    """Fits up to a fraction, or with few requests."""

    def __init__(self, most: float, seconds: float = 10.0, requests: int = 0) -> None:
        self.most, self.seconds, self.requests = most, seconds, requests
        self.said: list[dict[str, Any]] = []

    def __call__(self, changes: Mapping[str, Any]) -> tuple[MemoryReport, float]:
        self.said.append(dict(changes))
        fits = changes.get("mem_fraction_static", 1.0) <= self.most
        fits = fits or changes.get("max_running_requests", 1 << 30) <= self.requests
        record = ready() if fits else died()
        return report_of(record, "h200", TOTAL, "m", MIB), self.seconds


def test_the_first_fraction_is_lower_by_what_was_missing() -> None:
    server = Server(most=0.9)
    remedies, left = helpful(report(), Layout(), NEWEST, server)
    assert remedies[0].flags == "--mem-fraction-static 0.870"
    assert "914,039 KV tokens a rank" in remedies[0].cost and not left
    assert server.said[0] == {"mem_fraction_static": 0.87}


def test_a_fraction_that_fails_too_is_lowered_further() -> None:
    server = Server(most=0.86)
    remedies, _ = helpful(report(), Layout(), NEWEST, server)
    assert [one.flags for one in remedies] == ["--mem-fraction-static 0.850"]


def test_requests_are_of_all_dp_ranks() -> None:
    server = Server(most=0.0, seconds=1.0, requests=2048)
    remedies, _ = helpful(report(), Layout(tp=8, dp=8), NEWEST, server)
    assert [one.flags for one in remedies] == ["--max-running-requests 2048"]
    assert remedies[0].cost.startswith("at most 256 requests at once on a rank")


def test_what_there_was_no_time_for_is_said() -> None:
    server = Server(most=0.0, seconds=25.0)
    remedies, left = helpful(report(), Layout(), NEWEST, server)
    assert remedies == () and len(server.said) == 3
    assert left == ("--chunked-prefill-size 4096", "--max-running-requests 1024")


def test_graphs_are_given_up_for_graphs_and_gpus_added_for_weights() -> None:
    numbers = report()
    assert numbers.failure is not None
    in_graphs = replace(
        numbers, run=replace(numbers.run, failure=replace(numbers.failure, phase="decode graphs"))
    )
    assert [kind[0].changes for kind in attempts_for(in_graphs, Layout())] == [
        {"mem_fraction_static": 0.87},
        {"disable_cuda_graph": True},
    ]
    loading = replace(numbers, run=replace(numbers.run, failure=replace(numbers.failure, phase="weights")))
    assert [one.changes for one in attempts_for(loading, Layout(tp=2))[0]] == [{"tp_size": 4}, {"tp_size": 8}]


def test_a_pool_without_room_wants_a_higher_fraction() -> None:
    event = {"event": "died", "phase": "kv pool", "type": "ValueError", "text": "no memory left", "stack": []}
    steps = (phase("communicator", 0, 0, 0, 0), phase("weights", 0, *[120.0] * 3))
    record = made(arguments(), *steps, {**event, **reading(120, 120, 120, 120)}, ENDED)
    found = replace(report_of(record, "h200", TOTAL, "m", MIB), sizes=Sizes(mem_fraction_static=0.8))
    assert [one.changes for one in attempts_for(found, Layout())[0]] == [
        {"mem_fraction_static": 0.95},
        {"mem_fraction_static": 0.9},
    ]


def test_nothing_is_tried_where_memory_is_not_what_lacked() -> None:
    assert attempts_for(report_of(died("TypeError", "no"), "h200", 140 * GIB, "m", MIB), Layout()) == []
    assert attempts_for(report_of(ready(), "h200", 140 * GIB, "m", MIB), Layout()) == []
