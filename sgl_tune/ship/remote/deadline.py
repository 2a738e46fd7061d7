"""A time limit for every wait, because a peer that sends a byte a minute is never silent for long."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):
    """An answer did not come in time."""


@contextmanager
def within(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise TooSlow when the time is over. The yielded function restarts the time, from any thread. Limits
    cannot be nested. Outside the main thread there is no limit but the socket's own."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    running, turn = [True], threading.Lock()

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    def begin() -> None:
        with turn:
            if running:
                signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    begin()
    try:
        yield begin
    finally:
        with turn:  # another thread may not restart the time after this
            running.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
