"""A start that takes too long or too much is ended from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.ghost.cage import Keeper, Used, most_memory, used_by_group


@pytest.mark.parametrize(
    ("code", "seconds", "idle", "most", "why"),
    [
        ("time.sleep(600)", 60, 2, 1 << 40, "did nothing for 2 s"),
        ("[_ for _ in iter(int, 1)]", 1, 60, 1 << 40, "more than 1 s of CPU"),
        ("x = b'x' * (300 << 20); time.sleep(600)", 60, 60, 200 << 20, "GiB of this machine's memory"),
        ("[os.fork() for _ in range(6)]; time.sleep(600)", 60, 2, 1 << 40, "did nothing for 2 s"),
    ],
)
def test_a_start_that_takes_too_much_is_ended_with_all_that_it_started(
    tmp_path: Path, code: str, seconds: float, idle: float, most: int, why: str
) -> None:
    body = f"import os, resource, time; resource.setrlimit(resource.RLIMIT_CPU, (3, 3)); {code}"
    started = subprocess.Popen([sys.executable, "-I", "-c", body], start_new_session=True)
    keeper = Keeper(started.pid, seconds, most, idle)
    keeper.start()
    started.wait(30)
    keeper.stop()
    assert why in keeper.why
    time.sleep(0.2)
    assert used_by_group(started.pid) == Used()


def test_a_start_that_ends_by_itself_has_no_reason() -> None:
    started = subprocess.Popen([sys.executable, "-I", "-c", ""], start_new_session=True)
    keeper = Keeper(started.pid, 60, most_memory())
    keeper.start()
    started.wait()
    keeper.stop()
    assert keeper.why == ""
