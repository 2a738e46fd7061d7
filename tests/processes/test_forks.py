"""A pass by several copies of a process answers as one does, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sgl_tune.processes import forks
from sgl_tune.processes.forks import in_copies

_MANY = list(range(1000))
_HERE = os.getpid()

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")


@pytest.fixture(autouse=True)
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_cores", lambda: 3)
    monkeypatch.setattr(forks, "_WORTH_IT", 100)
    monkeypatch.setattr(forks, "is_alone", lambda: True)  # the test's own have nothing to do with it


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = _descriptors(), _children()
    yield
    assert (_descriptors(), _children()) == before


def _children() -> set[str]:
    """Ended ones that nobody waited for, too. Another file's, as of servers that stay, were here before."""
    return {
        one for task in Path("/proc/self/task").iterdir() for one in (task / "children").read_text().split()
    }


def _descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


def _who(items: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((item, os.getpid()) for item in items)


def test_answers_come_in_order_from_several_processes() -> None:
    found = in_copies(_who, _MANY, 1000)
    assert [item for item, _ in found] == _MANY
    assert len({process for _, process in found}) == 3
    assert found[0][1] == os.getpid()


def test_answers_larger_than_a_pipe_come_whole() -> None:
    assert in_copies(lambda items: (b"x" * 5000 for _ in items), _MANY, 1000) == [b"x" * 5000] * 1000


@pytest.mark.parametrize("items", [0, 1, 150])
def test_a_few_are_not_worth_a_copy(items: int) -> None:
    assert {process for _, process in in_copies(_who, _MANY[:items], items)} <= {os.getpid()}


def test_what_a_copy_that_died_did_not_answer_is_done_here() -> None:
    def work(items: Sequence[int]) -> Iterator[tuple[int, int]]:
        for item in items:
            if item == 500 and os.getpid() != _HERE:
                os.kill(os.getpid(), signal.SIGKILL)
            yield item, os.getpid()

    found = in_copies(work, _MANY, 1000)
    assert [item for item, _ in found] == _MANY
    assert len({process for _, process in found}) == 2


def test_an_exception_in_a_copy_is_raised_here() -> None:
    def work(items: Sequence[int]) -> Iterator[int]:
        for item in items:
            if item == 999:
                raise LookupError("the last one")
            yield item

    with pytest.raises(LookupError, match="the last one"):
        in_copies(work, _MANY, 1000)


def test_an_exception_here_ends_the_copies() -> None:
    def work(items: Sequence[int]) -> Iterator[int]:
        if os.getpid() == _HERE:
            raise KeyboardInterrupt
        time.sleep(60)
        yield from items

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_copies(work, _MANY, 1000)
    assert time.monotonic() - started < 20


_ORPHANS = """
import os, sys, time
from sgl_tune.processes import forks
forks._cores, forks._WORTH_IT = lambda: 3, 100
def work(items):
    for item in items:
        print(os.getpid(), file=sys.stderr, flush=True)
        time.sleep(0.2)
        yield item
forks.in_copies(work, list(range(1000)), 1000)
"""


def test_no_copy_outlives_who_made_it(tmp_path: Path) -> None:
    with (tmp_path / "pids").open("w") as pids:
        maker = subprocess.Popen([sys.executable, "-c", _ORPHANS], stderr=pids)
        deadline = time.monotonic() + 30
        while len(known := set((tmp_path / "pids").read_text().split())) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        maker.kill()
        maker.wait(10)
    while any(Path("/proc", process).exists() for process in known - {str(maker.pid)}):
        assert time.monotonic() < deadline
        time.sleep(0.05)
