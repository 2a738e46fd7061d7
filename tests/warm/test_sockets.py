"""Who listens while warm runs: nobody on one node, and node 0 at the one named address on two."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sgl_tune.running import PROGRAM, ROOT, environment
from tests.warm.processes import until
from tests.warm.test_warm import MODEL, SECONDS, SMALL, _rank_files

_LISTEN, _TABLES = "0A", ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


@pytest.fixture
def model(tmp_path: Path) -> tuple[str, ...]:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    return ("--model-path", str(folder), "--arch", "cpu", *SMALL)


class Spaces:
    """Two network namespaces with a cable between them."""

    def __init__(self) -> None:
        self.names = [f"sgltune{os.getpid()}{side}" for side in "ab"]
        self.addresses = ["10.98.76.1", "10.98.76.2"]

    def lay(self) -> None:
        a, b = self.names
        for name in self.names:
            _ip("netns", "add", name)
        _ip(
            "link", "add", f"v{os.getpid()}a", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b
        )
        _ip("-n", a, "link", "set", f"v{os.getpid()}a", "name", "cable")
        for name, address in zip(self.names, self.addresses, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _ip("-n", name, "link", "set", device, "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def spaces() -> Iterator[Spaces]:
    spaces = Spaces()
    try:
        spaces.lay()
    except (OSError, subprocess.CalledProcessError) as error:
        spaces.remove()
        pytest.skip(f"network namespaces are not permitted here: {error}")
    try:
        yield spaces
    finally:
        spaces.remove()


def _start(space: str, cache: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["ip", "netns", "exec", space, *PROGRAM, "warm", "--cache-dir", str(cache), *arguments],
        cwd=ROOT,
        env=environment(OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Observer:
    """Every 10 ms: all sockets of a process's network namespace that wait for somebody."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.seen: set[str] = set()
        self.looks = 0
        self._process = process
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> set[str]:
        self._thread.join(SECONDS)
        return self.seen

    def _watch(self) -> None:
        done = threading.Event()
        while self._process.poll() is None and not done.wait(0.01):
            self.looks += 1
            for table in _TABLES:
                with suppress(OSError):
                    lines = Path(f"/proc/{self._process.pid}/net/{table}").read_text().splitlines()[1:]
                    self.seen |= {
                        f"{table} {_address(fields[1])}"
                        for fields in map(str.split, lines)
                        if table[:3] != "tcp" or fields[3] == _LISTEN
                    }


def _address(text: str) -> str:
    address, port = text.split(":")
    if len(address) > 8:
        return f"{address}:{int(port, 16)}"
    return f"{socket.inet_ntoa(bytes.fromhex(address)[::-1])}:{int(port, 16)}"


def test_one_node_listens_nowhere_at_any_moment(
    spaces: Spaces, model: tuple[str, ...], tmp_path: Path
) -> None:
    """SGL_TUNE_OBSERVE=demo watches the main job as `make warm` runs it, which takes longer."""
    what = () if os.environ.get("SGL_TUNE_OBSERVE") == "demo" else model
    node = _start(spaces.names[0], tmp_path / "cache", *what, "--tp", "2", "--workers", "2")
    observer = Observer(node)
    _, err = node.communicate(timeout=SECONDS)
    assert node.returncode == 0, err
    assert observer.end() == set() and observer.looks > 100
    assert len(_rank_files(tmp_path / "cache")) == 2


def test_the_observer_sees_who_listens(spaces: Spaces) -> None:
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 4242)); time.sleep(1)"
    command = ["ip", "netns", "exec", spaces.names[0], PROGRAM[0], "-c", listen]
    observer = Observer(subprocess.Popen(command, text=True))
    assert observer.end() == {"tcp 127.0.0.1:4242"}


class _Boom:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {os.environ['BOOM']}",)


STRANGER = """
import sys, socket
payload = bytes.fromhex(sys.argv[2])
with socket.create_connection((sys.argv[1], 20000), timeout=20) as peer:
    key = b"sgl-tune"
    sizes = [size.to_bytes(8, "little") for size in (len(key), len(payload))]
    # torch's store: a magic number, then SET key value
    magic = bytes([0]) + (0x3C85F7CE).to_bytes(4, "little") + bytes([1])
    peer.sendall(magic + sizes[0] + key + sizes[1] + payload)
    try:
        while peer.recv(100):
            pass
    except ConnectionResetError:
        pass
    print("shown the door")
"""


def test_two_nodes_with_the_secret_write_the_files_of_one_and_a_stranger_runs_nothing(
    spaces: Spaces, model: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOM", str(tmp_path / "boom"))
    secrets = [_secret(tmp_path / name, text) for name, text in (("right", "x" * 32), ("wrong", "y" * 32))]
    both = ("--tp", "2", "--nnodes", "2", "--dist-init-addr", f"{spaces.addresses[0]}:20000")
    node = [
        (spaces.names[rank], tmp_path / f"node{rank}", *model, *both, "--node-rank", str(rank))
        for rank in (0, 1)
    ]
    without = _start(*node[1])
    assert without.wait(SECONDS) == 2
    assert "need --secret-file" in without.communicate()[1]
    host = _start(*node[0], "--secret-file", str(secrets[0]))
    observer = Observer(host)
    until(lambda: observer.seen, SECONDS)
    payload = pickle.dumps(_Boom()).hex()
    stranger = subprocess.run(
        ["ip", "netns", "exec", spaces.names[1], PROGRAM[0], "-c", STRANGER, spaces.addresses[0], payload],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert stranger.stdout.strip() == "shown the door", stranger.stderr
    wrong = _start(*node[1], "--secret-file", str(secrets[1]))
    assert wrong.wait(SECONDS) == 3
    assert "did not let this node in" in wrong.communicate()[1]
    guest = _start(*node[1], "--secret-file", str(secrets[0]), "--no-prove")
    for process in (guest, host):
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err
    assert f"a peer at {spaces.addresses[1]} was refused: it does not know the secret" in err
    assert observer.end() == {f"tcp {spaces.addresses[0]}:20000"}
    assert not (tmp_path / "boom").exists()
    written = {**_rank_files(tmp_path / "node0"), **_rank_files(tmp_path / "node1")}
    assert list(written) == ["rank_tp0_pp0_dp0.json", "rank_tp1_pp0_dp0.json"]
    assert len(set(written.values())) == 1


def _secret(file: Path, text: str) -> Path:
    file.touch(0o600)
    file.write_text(text)
    return file
