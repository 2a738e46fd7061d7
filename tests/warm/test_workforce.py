"""Workers that stay for one deployment after the other, over real processes: who is kept and who replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgl_tune.errors import WorkFailed
from sgl_tune.warm.launch import Fleet
from sgl_tune.warm.proof import HERE, How
from sgl_tune.warm.workforce import Workforce, workforce
from tests.warm.processes import runs, until

ROOT = Path(__file__).resolve().parents[2]
HOW = How("tests.warm.launch_worker", HERE.prover)
TWO = Fleet(2, "cpu", timeout=60.0)


@pytest.fixture(autouse=True)
def _tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def _searched(force: Workforce, fleet: Fleet = TWO, **plan: str) -> set[int]:
    """Who did it."""
    pids: set[int] = set()

    def hear(worker: int, event: dict[str, Any]) -> None:
        if event["kind"] == "start":
            pids.add(event["pid"])

    force.search(fleet, {"plan": plan}, hear)
    return pids


def test_workers_stay_until_one_fails_or_others_are_needed() -> None:
    with workforce(HOW) as force:
        assert not force.has_worked
        first = _searched(force)
        assert len(first) == 2 and force.has_worked and _searched(force) == first
        with pytest.raises(WorkFailed, match="worker 1 of 2: tactic 7"):
            _searched(force, **{"1": "fail"})
        assert not force.has_worked
        until(lambda: not any(map(runs, first)), 10)
        second = _searched(force)
        assert not first & second
        third = _searched(force, Fleet(1, "cpu", timeout=60.0))
        assert len(third) == 1 and not any(map(runs, second))
    assert not any(map(runs, third)) and not force.scratch.folder.exists()


def test_each_deployment_has_a_folder_of_its_own() -> None:
    with workforce(HOW) as force:
        folders = [force.folder() for _ in range(2)]
        assert len(set(folders)) == 2 and all(folder.is_dir() for folder in folders)
