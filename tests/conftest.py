"""Chooses the suites that can run here: `tests/sgl_tune` needs only the base install, others need torch."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, groupby, zip_longest
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.ghost.stock import Smallest, Stock
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

# The ghost's libraries are built once for all modules and both workers, which inherit this.
BUILT = "SGL_TUNE_TESTS_BUILT"
if BUILT not in os.environ:
    os.environ[BUILT] = tempfile.mkdtemp(prefix="sgl-tune-tests-")
    atexit.register(shutil.rmtree, os.environ[BUILT], True)

# They ask one stock SGLang, whose import takes longer than a start: one worker has them all.
ASK_STOCK = {
    "tests/frozen/test_asked.py",
    "tests/ghost/test_moe_configs.py",
    "tests/ghost/test_starts.py",
    "tests/warm/recorded/test_on_ghost.py",
}

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
    asking = {item.nodeid.split("::")[0] for item in items if "stock" in getattr(item, "fixturenames", ())}
    assert asking <= ASK_STOCK, f"ASK_STOCK lacks {asking - ASK_STOCK}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrServer(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "stock" if file in ASK_STOCK else file

    return ByFileOrServer(config, log) if config.getoption("dist") == "loadfile" else None


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


@pytest.fixture(scope="session")
def smallest() -> Smallest:
    """The smallest Python that has a stock SGLang."""
    from tests.ghost.stock import smallest

    return smallest()


@pytest.fixture(scope="session")
def stock(smallest: Smallest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """That SGLang, imported once, for all tests that start it."""
    from tests.ghost.stock import opened

    with opened(smallest, tmp_path_factory.mktemp("stock")) as stock:
        yield stock
