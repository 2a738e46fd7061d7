"""A prediction beside a run and beside a log."""

from dataclasses import replace

from runtime.server.units import GIB
from sgl_tune.memory.report import Row
from sgl_tune.memory.study import beside_log, beside_measured
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.rank_log import RankLog, Step
from tests.sgl_tune.memory.reports import make_phase, make_report


def _rows(comparison) -> dict[str, Row]:  # type: ignore[no-untyped-def]
    return {row.what: row for row in comparison.rows}


def test_each_measured_phase_stands_beside_its_prediction() -> None:
    predicted, measured = make_report(free=3), make_report(free=4, kv_tokens=990_000)
    rows = _rows(beside_measured(predicted, measured))
    assert rows["autotune: torch's peak"].difference == "+1.00 GiB, +1.4 %"
    assert rows["weights: torch's peak"].difference == "0 KiB, +0.0 %"
    assert rows["kv tokens"].difference == "+10,000, +1.0 %"


def test_an_oom_on_both_sides_is_compared() -> None:
    rows = _rows(beside_measured(make_report(failed=True), make_report(failed=True)))
    assert rows["tried to allocate"].predicted == round(6.38 * GIB)


def test_a_logs_steps_are_compared_by_what_was_left_and_what_was_taken() -> None:
    steps = [Step("weights", free_bytes=39 * GIB, used_bytes=39 * GIB), Step("unheard of", free_bytes=1)]
    sizes = {"max_running_requests": 2048}
    memory = {"baseline_bytes": 77 * GIB, "kv_tokens": 1_000_100, "kv_bytes": 61_464_000_000}
    lead = RankLog(rank="TP0", steps=steps, sizes=sizes, **memory)
    predicted = make_report()
    first = make_phase("communicator", 0, 0)
    predicted = replace(predicted, run=replace(predicted.run, phases=(first, *predicted.run.phases)))
    predicted = replace(predicted, sizes=replace(predicted.sizes, max_running_requests=2048))
    rows = _rows(beside_log(predicted, ServerLog(lead)))
    assert rows["free after weights"].difference == "-1.00 GiB, -2.6 %"
    assert rows["taken by weights"].difference == "+1.00 GiB, +2.6 %"
    assert rows["kv tokens"].difference == "-100, -0.0 %"
    assert rows["max running requests"].predicted == rows["max running requests"].other
    assert rows["free before weights"].difference == "+1.00 GiB, +1.3 %"
    assert rows["KV cache"].difference == "0 KiB, +0.0 %"
    assert len(rows) == 6


def test_to_json_keeps_the_numbers() -> None:
    data = beside_measured(make_report(), make_report()).to_json()
    assert data["other"] == "measured" and data["rows"]
