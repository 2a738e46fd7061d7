"""Modules built by the real ninja, as small as a module can be: what is there stays, what fails is told."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built, Task, build
from sgl_tune.compile.toolkit import program_path
from sgl_tune.processes.scratch import scratch
from tests.sgl_tune.running import ROOT, environment
from tests.warm.processes import until

ENVIRONMENT = {**os.environ, "PATH": program_path(os.environ)}
pytestmark = pytest.mark.skipif(
    shutil.which("ninja", path=ENVIRONMENT["PATH"]) is None, reason="ninja is not installed"
)
RULES = "rule make\n  command = {command}\n"


def task(root: Path, name: str, command: str, steps: int = 2) -> Task:
    folder = root / name
    folder.mkdir(parents=True)
    lines = [f"build {folder}/{number}.o: make" for number in range(steps)]
    text = RULES.format(command=command) + "\n".join(lines) + "\n"
    (folder / "build.ninja").write_text(text)
    return Task(name, folder, root / "tmp" / f"{name}.lock", steps)


def built(*tasks: Task, jobs: int = 2) -> dict[str, Built]:
    with scratch() as private:
        return {one.name: one for one in build(tasks, jobs, ENVIRONMENT, private, Output(Format.quiet))}


def test_what_is_built_once_is_there(tmp_path: Path) -> None:
    one = task(tmp_path, "norm", "touch $out")
    first = built(one)["norm"]
    assert (first.state, first.steps) == ("built", 2) and first.seconds > 0
    again = built(one)["norm"]
    assert (again.state, again.steps, again.seconds) == ("there", 0, 0.0)
    (one.folder / "0.o").unlink()
    assert built(one)["norm"].steps == 1, "what is missing alone is made again"


def test_one_that_fails_keeps_no_other_from_being_built_and_says_why(tmp_path: Path) -> None:
    bad = task(tmp_path, "bad", "echo 'norm.cu: fatal error: cublasLt.h: No such file' && false")
    found = built(bad, task(tmp_path, "good", "touch $out"))
    assert found["good"].state == "built"
    assert found["bad"].state == "failed" and "cublasLt.h" in (found["bad"].why or "")


def test_a_module_that_somebody_else_builds_is_waited_for(tmp_path: Path) -> None:
    one = task(tmp_path, "norm", "touch $out")
    one.lock.parent.mkdir()
    lock = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    holds = f"{lock}; print('held', flush=True); time.sleep(1)"
    holder = subprocess.Popen([sys.executable, "-c", holds, str(one.lock)], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    began = time.monotonic()
    assert built(one)["norm"].state == "built" and time.monotonic() - began > 0.5
    holder.wait(10)
    holder.stdout.close()


INTERRUPTED = """
import sys
from pathlib import Path
from sgl_tune.compile.build import Task, build
from sgl_tune.cli.out import Output
from sgl_tune.processes.interruption import Interruption, interruptible
from sgl_tune.processes.scratch import scratch
import os
folder = Path(sys.argv[1])
try:
    with interruptible(), scratch() as private:
        print("begun", flush=True)
        build([Task("long", folder, folder.parent / "long.lock", 1)], 1, dict(os.environ), private, Output())
except Interruption as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_who_is_interrupted(tmp_path: Path, number: int) -> None:
    mark = f"{600 + os.getpid() % 300}.125"  # a length of sleep that no other process has
    one = task(tmp_path, "long", f"sleep {mark}", 1)
    variables = {**environment(), "PATH": ENVIRONMENT["PATH"], "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", INTERRUPTED, str(one.folder)]
    working = subprocess.Popen(command, stdout=subprocess.PIPE, env=variables)
    assert working.stdout is not None and working.stdout.readline() == b"begun\n"
    until(lambda: _sleepers(mark) > 0, 20)
    working.send_signal(number)
    working.wait(30)
    until(lambda: _sleepers(mark) == 0, 20)
    working.stdout.close()


def _sleepers(mark: str) -> int:
    found = 0
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += place.read_bytes() == b"sleep\0" + mark.encode() + b"\0"
        except OSError:
            continue
    return found
