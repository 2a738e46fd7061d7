"""A start that takes too long or too much is ended from outside."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.ghost.cage import Keeper, Used, most_memory, used_by_group
from tests.warm.processes import until


@pytest.mark.parametrize(
    ("code", "seconds", "idle", "most", "why"),
    [
        ("[_ for _ in iter(int, 1)]", 1, 60, 1 << 40, "more than 1 s of CPU"),
        ("x = b'x' * (300 << 20); time.sleep(600)", 60, 60, 200 << 20, "GiB of this machine's memory"),
        ("[os.fork() for _ in range(6)]; time.sleep(600)", 60, 1, 1 << 40, "did nothing for 1 s"),
    ],
)
def test_a_start_that_takes_too_much_is_ended_with_all_that_it_started(
    tmp_path: Path, code: str, seconds: float, idle: float, most: int, why: str
) -> None:
    body = f"import os, resource, time; resource.setrlimit(resource.RLIMIT_CPU, (60, 60)); {code}"
    started = subprocess.Popen([sys.executable, "-I", "-c", body], start_new_session=True)
    keeper = Keeper(started.pid, seconds, most, idle)
    keeper.start()
    started.wait(120)
    keeper.stop()
    assert why in keeper.why
    until(lambda: used_by_group(started.pid) == Used(), 60)


def test_a_start_that_ends_by_itself_has_no_reason() -> None:
    started = subprocess.Popen([sys.executable, "-I", "-c", ""], start_new_session=True)
    keeper = Keeper(started.pid, 60, most_memory())
    keeper.start()
    started.wait()
    keeper.stop()
    assert keeper.why == ""


def test_a_pause_of_the_whole_machine_does_not_end_a_start() -> None:
    watch = """if True:
        import subprocess, sys, time
        from runtime.ghost.cage import Keeper
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        keeper = Keeper(busy.pid, 600, 1 << 40, 5)
        keeper.start()
        time.sleep(0.1)
        print(busy.pid, flush=True)
        sys.stdin.read()
        keeper.stop()
        busy.kill()
        print(keeper.why or "nothing")
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", watch], **pipes) as watcher:  # type: ignore[call-overload]
        both = (watcher.pid, int(watcher.stdout.readline()))
        for pause, then in ((signal.SIGSTOP, 6.0), (signal.SIGCONT, 2.0)):
            for process in both:
                os.kill(process, pause)
            time.sleep(then)
        assert watcher.communicate(timeout=60)[0].strip() == "nothing"
