"""The driver that measures a real GPU, run here on the ghost's libraries and no other part of the ghost."""

import json
from pathlib import Path

from benchmarks.real_starts.measuring import measure
from tests.ghost.stock import Smallest
from tests.ghost.test_starts import CONFIG, NO_GRAPHS, WEIGHTS

UNTIL_FORWARD = ["communicator", "weights", "kv pool"]  # kernels that compute nothing are no matter so far


def test_measured_starts_take_weights_and_none_of_the_ghosts_half(smallest: Smallest, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    ghost = smallest.ghost().environment()
    argv = ["--model-path", str(tmp_path), "--attention-backend", "triton", "--sampling-backend", "pytorch"]
    argv += ["--mem-fraction-static", "0.5", NO_GRAPHS]
    [record] = measure(smallest.python, argv, range(1), tmp_path / "work", "h200", 240, ghost)
    assert record.ending.how in ("ready", "died"), record.ending
    assert [phase.name for phase in record.phases][: len(UNTIL_FORWARD)] == UNTIL_FORWARD
    weights = record.phase("weights")
    assert weights is not None
    assert 0 <= weights.allocated - weights.allocated_before - WEIGHTS < 4 << 20
    assert not record.inexact
    assert not record.modules
