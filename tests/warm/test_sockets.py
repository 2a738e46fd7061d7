"""No socket waits for anybody while warm runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sgl_tune.running import PROGRAM, ROOT, environment
from tests.warm.test_warm import MODEL, SECONDS, SMALL, _rank_files

_LISTEN, _TABLES = "0A", ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


@pytest.fixture
def model(tmp_path: Path) -> tuple[str, ...]:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    return ("--model-path", str(folder), "--arch", "cpu", *SMALL)


@pytest.fixture
def space() -> Iterator[str]:
    """A network namespace of its own, so that nobody else's sockets are seen."""
    name = f"sgltune{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        pytest.skip(f"network namespaces are not permitted here: {error}")
    try:
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


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


def test_a_warm_listens_nowhere_at_any_moment(space: str, model: tuple[str, ...], tmp_path: Path) -> None:
    """SGL_TUNE_OBSERVE=demo watches the main job as `make warm` runs it, which takes longer."""
    what = () if os.environ.get("SGL_TUNE_OBSERVE") == "demo" else model
    words = ["--cache-dir", str(tmp_path / "cache"), *what, "--tp", "2", "--workers", "2"]
    warm = subprocess.Popen(
        ["ip", "netns", "exec", space, *PROGRAM, "warm", *words],
        cwd=ROOT,
        env=environment(OMP_NUM_THREADS="1"),
        stderr=subprocess.PIPE,
        text=True,
    )
    observer = Observer(warm)
    _, err = warm.communicate(timeout=SECONDS)
    assert warm.returncode == 0, err
    assert observer.end() == set() and observer.looks > 100
    assert len(_rank_files(tmp_path / "cache")) == 2


def test_the_observer_sees_who_listens(space: str) -> None:
    listen = "import socket, time; s = socket.create_server(('127.0.0.1', 4242)); time.sleep(1)"
    observer = Observer(subprocess.Popen(["ip", "netns", "exec", space, PROGRAM[0], "-c", listen]))
    assert observer.end() == {"tcp 127.0.0.1:4242"}
