"""Nodes that meet over real sockets: with the secret they work as one, without it nothing is believed."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.warm.place import parse_place
from sgl_tune.warm.secret import read_secret

ROOT = Path(__file__).resolve().parents[2]
SECRET = b"a secret of some length"
NODE = """
import json, sys
from sgl_tune.errors import SglTuneError
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.launch import Fleet, launch
from sgl_tune.warm.meeting import Meeting, met
from sgl_tune.warm.place import Place
place, secret, nodes, rank, plan, timeout = json.loads(sys.argv[1])
meeting = Meeting(Place(**place), secret.encode(), nodes, rank, timeout)
def heard(worker, event):
    if event["kind"] == "start":
        print("start", event["pid"], file=sys.stderr, flush=True)
try:
    with scratch() as private, met(meeting, 1, lambda text: print(text, file=sys.stderr, flush=True)) as team:
        fleet = Fleet(1, "cpu", timeout=timeout, silence=3.0)
        print(launch("tests.warm.launch_worker", private, fleet, {"plan": plan}, heard, team)["everyone"])
except SglTuneError as error:
    print(error.message)
"""


@pytest.fixture
def place() -> dict[str, object]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"host": "127.0.0.1", "port": free.getsockname()[1]}


def _node(
    place: dict[str, object],
    rank: int,
    *,
    secret: bytes = SECRET,
    nodes: int = 2,
    plan: dict[int, str] | None = None,
    timeout: float = 30.0,
) -> subprocess.Popen[str]:
    acts = {str(rank): act for rank, act in (plan or {}).items()}
    asked = json.dumps([place, secret.decode(), nodes, rank, acts, timeout])
    return subprocess.Popen(
        [sys.executable, "-c", NODE, asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def _said(node: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = node.communicate(timeout=60)
    return out.strip(), err


def _connected(place: dict[str, object]) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((place["host"], place["port"]), timeout=10)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("count", [2, 3])
def test_nodes_search_as_one(place: dict[str, object], count: int) -> None:
    nodes = [_node(place, rank, nodes=count) for rank in range(count)]
    assert [_said(node)[0] for node in nodes] == [str(list(range(count)))] * count


def test_tasks_of_one_machine_meet_without_a_network(place: dict[str, object]) -> None:
    here = {"name": f"sgl-tune test {os.getpid()}"}
    nodes = [_node(here, rank, secret=b"") for rank in (0, 1)]
    assert [_said(node)[0] for node in nodes] == ["[0, 1]"] * 2


class _Boom:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {os.environ['BOOM']}",)


def test_strangers_run_nothing_and_keep_nobody_out(
    place: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One speaks torch's store protocol with a pickle in it, one says nothing, one sends a giant frame."""
    boom = tmp_path / "boom"
    monkeypatch.setenv("BOOM", str(boom))
    host = _node(place, 0)
    payload = pickle.dumps(_Boom())
    key = b"sgl-tune"
    sizes = [size.to_bytes(8, "little") for size in (len(key), len(payload))]
    torch_set = b"\x00\x3c\x85\xf7\xb9\x01" + sizes[0] + key + sizes[1] + payload
    strangers = [_connected(place) for _ in range(3)]
    strangers[0].sendall(torch_set * 10)
    strangers[1].sendall(b"\xff" * 5000)
    guest = _node(place, 1)
    assert [_said(node)[0] for node in (guest, host)] == ["[0, 1]"] * 2
    assert not boom.exists()


def test_a_wrong_secret_is_named_on_both_sides(place: dict[str, object]) -> None:
    host, guest = _node(place, 0, timeout=6.0), _node(place, 1, secret=b"another secret, as long")
    assert _said(guest)[0].startswith(f"node 0 at 127.0.0.1:{place['port']} did not let this node in: ")
    out, err = _said(host)
    assert "a peer at 127.0.0.1 was refused: it does not know the secret" in err
    assert out.startswith("node 1 of 2 did not come to 127.0.0.1:") and "refused were 127.0.0.1" in out


def test_a_host_without_the_secret_learns_and_tells_nothing(place: dict[str, object]) -> None:
    with socket.create_server((str(place["host"]), int(str(place["port"])))) as server:
        guest = _node(place, 1)
        connection, _ = server.accept()
        connection.settimeout(30)
        connection.sendall(b"n" * 32)
        proof = b""
        while len(proof) < 64:
            proof += connection.recv(64)
        connection.sendall(b"\0" * 32 + pickle.dumps("welcome"))
        assert _said(guest)[0].endswith("did not let this node in: it does not know the secret")
        assert connection.recv(1) == b""


def test_a_node_of_another_size_is_sent_away_and_the_right_one_let_in(place: dict[str, object]) -> None:
    host = _node(place, 0)
    assert "sent this node away: it was started with --nnodes 3" in _said(_node(place, 1, nodes=3))[0]
    assert "sent this node away: node 0 has a node of --node-rank 2" in _said(_node(place, 2))[0]
    guest = _node(place, 1)
    assert [_said(node)[0] for node in (host, guest)] == ["[0, 1]"] * 2


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        ("fail", "worker 0 of 1 on node 1: tactic 7 of gemm1 ran out of memory"),
        ("die", "worker 0 of 1 on node 1 was killed by SIGKILL"),
    ],
)
def test_all_nodes_name_the_worker_that_failed(place: dict[str, object], act: str, sentence: str) -> None:
    nodes = [_node(place, rank, plan={1: act}) for rank in (0, 1)]
    assert [_said(node)[0] for node in nodes] == [sentence] * 2


@pytest.mark.parametrize(("number", "why"), [(9, "was lost: "), (19, "gave no sign of life for ")])
def test_a_node_that_is_gone_or_stopped_is_named(place: dict[str, object], number: int, why: str) -> None:
    host, guest = _node(place, 0, plan={0: "stall"}), _node(place, 1, plan={1: "stall"})
    assert guest.stderr is not None
    assert "start" in guest.stderr.readline()
    guest.send_signal(number)
    assert f"node 1 {why}" in _said(host)[0]
    guest.kill()
    guest.communicate(timeout=10)


@pytest.mark.parametrize("address", [None, "node0", "node0:port", ":1", "node0:0", "node0:65536", "h:²"])
def test_an_address_nobody_can_meet_at_is_wrong_usage(address: str | None) -> None:
    with pytest.raises(UsageError, match="dist-init-addr"):
        parse_place(address, 2)


def test_an_address_of_another_machine_is_wrong_usage_on_node_0() -> None:
    said, _ = _said(_node({"host": "192.0.2.1", "port": 20000}, 0))
    assert (
        said
        == "--dist-init-addr 192.0.2.1:20000: node 0 cannot listen there (Cannot assign requested address)"
    )


def test_a_secret_is_a_private_file_of_some_length(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    for content, mode, why in (
        (b"short\n", 0o600, "holds 5 bytes"),
        (b"x" * 5000, 0o600, "a secret has 16 to 4096"),
        (SECRET, 0o644, "others may use it"),
    ):
        file.write_bytes(content)
        file.chmod(mode)
        with pytest.raises(UsageError, match=why):
            read_secret(file)
    file.chmod(0o400)
    assert read_secret(file) == SECRET
    os.mkfifo(tmp_path / "fifo", 0o600)
    for odd in ("fifo", ".", "missing"):
        with pytest.raises(UsageError):
            read_secret(tmp_path / odd)
