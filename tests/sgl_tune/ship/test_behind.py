"""Work in a thread of its own: in order, all of it, or until something goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from sgl_tune.ship.behind import behind


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_all_is_done_in_the_order_in_which_it_was_given() -> None:
    done: list[int] = []
    with behind() as work:
        for number in range(500):
            work.do(partial(done.append, number))
            if number == 250:
                work.wait()
                assert done == list(range(251))
    assert done == list(range(500))


def _fail() -> None:
    raise OSError(28, "No space left on device")


def test_after_a_failure_nothing_is_done_and_whoever_gives_hears_of_it() -> None:
    done: list[int] = []
    with pytest.raises(OSError, match="No space"), behind() as work:
        work.do(_fail)
        for number in range(10_000):
            work.do(partial(done.append, number))
    assert done == []


@pytest.mark.parametrize("waits", [True, False])
def test_a_failure_of_the_last_is_heard_of(waits: bool) -> None:
    with pytest.raises(OSError, match="No space"), behind() as work:
        work.do(_fail)
        if waits:
            work.wait()


def test_what_waits_when_the_giver_fails_is_left_undone() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), behind() as work:
        work.do(partial(time.sleep, 0.3))
        for number in range(20):
            work.do(partial(done.append, number))
        raise KeyboardInterrupt
    assert done == []
