"""The launcher over real worker processes: what it says when one dies, stops, stalls or fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgl_tune.errors import WorkFailed
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.launch import Fleet, Workers
from tests.warm.processes import runs, tree_of, until

ROOT = Path(__file__).resolve().parents[2]
WORKER = "tests.warm.launch_worker"


@pytest.fixture(autouse=True)
def _tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def _launch(plan: dict[int, str], **fleet: object) -> tuple[list[tuple[int, dict]], object]:
    heard: list[tuple[int, dict]] = []
    settings = Fleet(**{"workers": 2, "device": "cpu", "timeout": 60.0, **fleet})
    with scratch() as private:
        job = {"plan": {str(rank): act for rank, act in plan.items()}}
        with Workers(WORKER, private, settings) as workers:
            report = workers.run(job, lambda worker, event: heard.append((worker, event)))
    return heard, report


def test_workers_meet_and_are_heard() -> None:
    heard, report = _launch({})
    said = [event["everyone"] for _, event in heard if event["kind"] == "progress"]
    assert said == [[0, 1], [0, 1]] and report == {"everyone": [0, 1]}


@pytest.mark.parametrize(
    ("act", "sentence", "remedy"),
    [
        ("die", "worker 1 of 2 was killed by SIGKILL", None),
        ("fail", "worker 1 of 2: tactic 7 of gemm1 ran out of memory", None),
        ("mumble", "worker 1 of 2 ended with exit code 7", "its last words: the last thing that it knew"),
    ],
)
def test_a_lost_worker_is_named_within_seconds(act: str, sentence: str, remedy: str | None) -> None:
    started = time.monotonic()
    with pytest.raises(WorkFailed) as failure:
        _launch({1: act})
    assert (failure.value.message, failure.value.remedy) == (sentence, remedy)
    assert time.monotonic() - started < 30


def test_a_stalled_worker_is_named_after_the_timeout_and_not_who_waits_for_it() -> None:
    with pytest.raises(WorkFailed, match=r"worker 1 of 2 made no progress for \d+ s \(--timeout\)"):
        _launch({1: "stall"}, timeout=7.0)


def test_a_stopped_process_is_noticed_by_its_silence() -> None:
    with pytest.raises(WorkFailed, match=r"worker 1 of 2 gave no sign of life for \d+ s and was stopped"):
        _launch({1: "stop"}, silence=5.0)


LAUNCHER = """
from sgl_tune.processes.interruption import *
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.launch import *
import sys
try:
    with interruptible(), scratch() as private:
        job = {"plan": {"0": "stall", "1": "stop"}}
        with Workers("tests.warm.launch_worker", private, Fleet(2, "cpu")) as workers:
            workers.run(job, lambda w, e: print(e, flush=True))
except Interruption as interruption:
    print(interruption, flush=True)
    sys.exit(end_by(interruption))
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGKILL, -9)],
)
def test_no_ending_leaves_a_worker_or_a_folder_behind(number: int, code: int, tmp_path: Path) -> None:
    settings = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", LAUNCHER]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings, cwd=ROOT)
    assert parent.stdout is not None
    for _ in range(2):  # both have begun, one of them is stopped
        assert "start" in parent.stdout.readline()
    processes = tree_of(parent.pid)
    assert len(processes) == 4 and len(list(tmp_path.iterdir())) == 1
    parent.send_signal(number)
    said, _ = parent.communicate(timeout=30)
    assert parent.returncode == code
    assert said == ("" if number == signal.SIGKILL else f"interrupted by {signal.Signals(number).name}\n")
    until(lambda: not any(map(runs, processes)), 30)
    assert list(tmp_path.iterdir()) == []
