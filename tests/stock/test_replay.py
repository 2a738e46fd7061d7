"""A replay on an op whose times are known: what is timed, what is told, and that nothing is kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.replay import ReplayTuner, install_replay_tuner
from tests.runtime.tuned_layer import installed
from tests.stock.timed_op import TOKENS, Timed, ask, key


@pytest.fixture(autouse=True)
def _own_tuner() -> Iterator[None]:
    with installed(None):
        yield


def _replay(folder: Path, runner: Timed, tactics: dict[int, Any]) -> ReplayTuner:
    """The entry of each bucket, asked for twice as several calls of a start do."""
    path = folder / "file.json"
    path.write_text(json.dumps({key(rows): ["Timed", tactic] for rows, tactic in tactics.items()}))
    tuner = install_replay_tuner(torch.device("cpu"))
    assert tuner.load_configs(str(path)) and AutoTuner.get() is tuner
    with autotune(True):
        for _ in range(2):
            ask(runner, rows=TOKENS[-1])
    return tuner


def test_each_entry_is_timed_beside_the_default(tmp_path: Path) -> None:
    runner = Timed({-1: 0.6, 0: 0.1, 1: 2.4, 2: 0.05})
    told = {entry.bucket: entry for entry in _replay(tmp_path, runner, {1: 0, 2: 1, 4: -1}).replayed}
    assert [told[rows].tactic for rows in TOKENS] == [0, 1, -1]
    assert told[1].best_ms < told[1].default_ms / 2, "it is still worth it"
    assert told[2].best_ms > told[2].default_ms * 2, "the default is faster now"
    assert told[4].best_ms == told[4].default_ms
    assert [told[rows].key for rows in TOKENS] == [key(rows) for rows in TOKENS]
    assert runner.launches[2] == 0, "no search: other tactics are left alone"


def test_nothing_is_tuned_and_nothing_kept(tmp_path: Path) -> None:
    runner = Timed({-1: 0.2, 0: 0.1})
    tuner = _replay(tmp_path, runner, {2: 0})
    assert [entry.bucket for entry in tuner.replayed] == [2], "what has no entry is not its business"
    assert tuner.profiling_cache == {} and tuner.results == []


def test_a_choice_that_fails_now_is_told_with_its_reason(tmp_path: Path) -> None:
    runner = Timed({-1: 0.1, 0: 0.1}, failures={0: lambda: RuntimeError("no such kernel")})
    (entry,) = _replay(tmp_path, runner, {1: 0}).replayed
    assert (entry.best_ms, entry.failed) == (None, "no such kernel")
    assert entry.default_ms is not None
