"""An end to waiting, whoever is waited for: a peer that sends a byte a minute is never silent for long."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):
    """What was waited for did not come in time."""


@contextmanager
def within(seconds: float) -> Iterator[Callable[[], None]]:
    """Not to be nested. What it gives begins the time anew, from any thread. In a thread other than the first
    there is no such clock, and no end but the socket's own."""
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
        with turn:  # who still works in another thread begins nothing after this
            running.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
