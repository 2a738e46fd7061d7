"""The driver that measures a real GPU, run here on the ghost's libraries and no other part of the ghost."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.real_starts.measuring import measure
from runtime.ghost.build import library
from runtime.ghost.gpus import gpus
from runtime.sglang.server_process import Ghost
from tests.ghost.environments import SMALLEST, python_of
from tests.ghost.test_starts import CONFIG, NO_GRAPHS, WEIGHTS

UNTIL_FORWARD = ["communicator", "weights", "kv pool"]  # kernels that compute nothing are no matter so far


def test_a_measured_start_takes_its_weights_and_nothing_of_the_ghosts_half(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    python = python_of(SMALLEST)
    packages = next(python.parent.parent.glob("lib/python3*/site-packages"))
    row = gpus()["h200"]
    ghost = Ghost(library([packages], tmp_path / "cache"), row.name, row.row(), halves={})
    argv = ["--model-path", str(tmp_path), "--attention-backend", "triton", "--sampling-backend", "pytorch"]
    argv += ["--mem-fraction-static", "0.5", *NO_GRAPHS]
    [record] = measure(python, argv, range(1), tmp_path / "work", "h200", 240, ghost.environment())
    assert record.ending.how in ("ready", "died"), record.ending
    assert [phase.name for phase in record.phases][: len(UNTIL_FORWARD)] == UNTIL_FORWARD
    weights = record.phase("weights")
    assert weights is not None
    assert 0 <= weights.allocated - weights.allocated_before - WEIGHTS < 4 << 20
    assert not record.inexact
    assert not record.modules
