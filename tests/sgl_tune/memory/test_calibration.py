"""Constants measured by a start, written and read back; files that are something else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.server.units import MIB
from runtime.simulate.constants import constants_for
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.calibration import calibrated, read_constants
from sgl_tune.memory.measure import OTHERS_MOVED
from sgl_tune.memory.report import Constant, MemoryReport
from tests.sgl_tune.memory.reports import make_phase, make_report

OUTSIDE = {
    "communicator": 620,
    "weights": 700,
    "kv pool": 700,
    "attention backend": 766,
    "autotune": 856,
    "ready": 1256,
}


def _make_measured(**outside: int) -> MemoryReport:
    report = make_report()
    phases = tuple(
        replace(make_phase(name, 1, 1), non_torch_bytes=amount * MIB)
        for name, amount in {**OUTSIDE, **outside}.items()
    )
    return replace(report, run=replace(report.run, phases=phases))


def _make_predicted(nodes: int) -> MemoryReport:
    return replace(make_report(), constants=(Constant("graph node", nodes * 4810, "known", nodes),))


def test_each_constant_is_the_growth_of_its_step(tmp_path: Path) -> None:
    found = calibrated(_make_measured(), _make_predicted(nodes=100_000))
    amounts = {constant.name: constant.bytes for constant in found.constants}
    assert amounts == {
        "context": 620 * MIB,
        "torch kernels": 80 * MIB,
        "cublas": 66 * MIB,
        "kernels": 90 * MIB,
        "graph node": 400 * MIB // 100_000,
    }
    file = tmp_path / "constants.json"
    file.write_text(json.dumps(found.to_json()))
    read = read_constants(file, "sm90")
    assert {name: read.outside[name].bytes for name in amounts} == amounts
    assert read.nccl == constants_for("sm90").nccl and "Test GPU" in read.outside["context"].source


def test_pieces_and_kernels_of_graphs_share_one_growth() -> None:
    pieces = Constant("graph", 300 * MIB, "known", 3_000)
    kernels = Constant("graph node", 100 * MIB, "known", 25_000)
    messages = Constant("nccl graph", 100 * MIB, "known", 10)
    predicted = replace(make_report(), constants=(pieces, kernels, messages))
    found = {of.name: of for of in calibrated(_make_measured(), predicted).constants}
    assert found["graph"].bytes == 300 * 300 * MIB // 400 // 3_000
    assert found["graph node"].bytes == 300 * 100 * MIB // 400 // 25_000
    assert "0.75 of what was known of 3,000" in found["graph"].source
    shrunk = calibrated(_make_measured(ready=856), predicted).constants
    assert [of.bytes for of in shrunk if of.name.startswith("graph")] == [0, 0]


def test_a_start_that_died_or_captured_nothing_calibrates_nothing() -> None:
    with pytest.raises(WorkFailed, match="ended in autotune"):
        calibrated(make_report(failed=True), _make_predicted(1))
    with pytest.raises(WorkFailed, match="no graphs"):
        calibrated(_make_measured(), _make_predicted(0))
    with pytest.raises(WorkFailed, match="no phase"):
        calibrated(make_report(), _make_predicted(1))


def test_what_moved_beside_it_calibrates_nothing() -> None:
    measured = _make_measured().with_note(f"{OTHERS_MOVED} by 5.06 GB: figures err by as much")
    with pytest.raises(WorkFailed, match=r"other processes hold .* changed meanwhile by 5.06 GB"):
        calibrated(measured, _make_predicted(100))


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", "{\"constants\": 3}", "[" * 100_000, '{"constants": [{"name": "context"}]}',
     '{"constants": [{"name": "moon", "bytes": 1, "source": ""}]}',
     '{"constants": [{"name": "context", "bytes": -1, "source": ""}]}'],
    ids=range(8),
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "constants.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"constants\.json"):
        read_constants(file, "sm90")
