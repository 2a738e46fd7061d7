"""Chooses the suites that can run here: `tests/sgl_tune` needs only the base install, others need torch."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, groupby, zip_longest
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.runtime.ranks import Ranks

collect_ignore = (
    [] if find_spec("torch") else [*("runtime", "stock", "warm", "memory", "gpu", "sgl_tune/memory")]
)

# Two processes on two cores, and their children: torch's threads would wait for each other in turns.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A server that somebody added on this machine is not asked: tests name theirs.
os.environ["SGL_TUNE_SERVERS"] = os.devnull

# Ranks meet on loopback, whatever this machine calls itself.
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

# Models of thousands of parts are made here and dropped: a fifth of the time went to looking for cycles.
gc.set_threshold(100_000, 50, 1000)

# Hundreds of processes start here: without their bytecode each would compile all of our source anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's background job ignores Ctrl-C, nohup's a hang-up: every command tested here would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the warm's files first, alternating with others. They take longest and start the most processes, so
    the two workers are seldom in two of them at once, and none of them is left for the end."""
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    warm = [tests for tests in files if tests[0].path.parent.name == "warm"]
    others = [tests for tests in files if tests[0].path.parent.name != "warm"]
    items[:] = chain.from_iterable(chain.from_iterable(zip_longest(others, warm, fillvalue=[])))


def pytest_sessionfinish() -> None:
    """Run what a process does at its exit, because a worker of xdist does not."""
    checkpoints = sys.modules.get("tests.sgl_tune.modelopt")
    if checkpoints is not None:
        checkpoints.remove()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """One set of processes for all tests with real ranks: starting them takes longer than most tests."""
    from tests.runtime.ranks import started

    with started(4) as ranks:
        yield ranks
