"""The launcher over real worker processes: what it says when one dies, stops, stalls or fails."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.warm.launch import Fleet, launch

WORKER = "tests.warm.launch_worker"


def _launch(tmp_path: Path, plan: dict[int, str], **fleet: object) -> list[tuple[int, dict]]:
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    heard: list[tuple[int, dict]] = []
    settings = Fleet(**{"workers": 2, "device": "cpu", "timeout": 60.0, **fleet})
    launch(WORKER, tmp_path, settings, lambda worker, event: heard.append((worker, event)))
    return heard


def test_workers_meet_and_are_heard(tmp_path: Path) -> None:
    heard = _launch(tmp_path, {})
    said = [event["everyone"] for _, event in heard if event["kind"] == "progress"]
    assert said == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        ("die", "worker 1 of 2 was killed by SIGKILL"),
        ("fail", "worker 1 of 2: tactic 7 of gemm1 ran out of memory"),
    ],
)
def test_a_lost_worker_is_named_within_seconds(tmp_path: Path, act: str, sentence: str) -> None:
    started = time.monotonic()
    with pytest.raises(WorkFailed) as failure:
        _launch(tmp_path, {1: act})
    assert failure.value.message == sentence
    assert time.monotonic() - started < 30


def test_a_stalled_worker_is_named_after_the_timeout(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match=r"worker 0 of 2 made no progress for \d+ s \(--timeout\)"):
        _launch(tmp_path, {0: "stall", 1: "stall"}, timeout=4.0)


def test_a_stopped_process_is_noticed_by_its_silence(tmp_path: Path) -> None:
    with pytest.raises(WorkFailed, match=r"worker 1 of 2 gave no sign of life for \d+ s and was stopped"):
        _launch(tmp_path, {1: "stop"}, silence=3.0)


def test_ctrl_c_leaves_no_worker_behind(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({0: "stall", 1: "stall"}))
    script = (
        "from pathlib import Path; from sgl_tune.warm.launch import *\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "try: launch('tests.warm.launch_worker', folder, Fleet(2, 'cpu'), lambda w, e: None)\n"
        "except Interrupted as e: print(e.message)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pids = _wait_for_pids(tmp_path, 2)
    parent.send_signal(signal.SIGINT)
    said, _ = parent.communicate(timeout=30)
    assert said.strip() == "interrupted by SIGINT: the workers were stopped"
    assert not any(_runs(pid) for pid in pids)


def test_two_nodes_meet_over_loopback(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    nodes = []
    for node in (0, 1):
        folder = tmp_path / str(node)
        folder.mkdir()
        (folder / "plan.json").write_text("{}")
        script = (
            "from pathlib import Path; from sgl_tune.warm.launch import *\n"
            f"fleet = Fleet(1, 'cpu', nnodes=2, node_rank={node}, address={address!r}, timeout=60)\n"
            "heard = []\n"
            f"launch('{WORKER}', Path({str(folder)!r}), fleet, lambda w, e: heard.append(e))\n"
            "print([e['everyone'] for e in heard if e['kind'] == 'progress'])"
        )
        nodes.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))
    assert [node.communicate(timeout=90)[0].strip() for node in nodes] == ["[[0, 1]]", "[[0, 1]]"]


@pytest.mark.parametrize("address", [None, "node0", "node0:port"])
def test_an_address_nobody_can_meet_at_is_wrong_usage(tmp_path: Path, address: str | None) -> None:
    with pytest.raises(UsageError, match="dist-init-addr"):
        launch(WORKER, tmp_path, Fleet(1, "cpu", nnodes=2, address=address), lambda w, e: None)


def _wait_for_pids(folder: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = [line for path in folder.glob("events.*.jsonl") for line in path.read_text().splitlines()]
        pids = [json.loads(line)["pid"] for line in lines if '"start"' in line]
        if len(pids) == count:
            return pids
        time.sleep(0.1)
    raise AssertionError("the workers never started")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
