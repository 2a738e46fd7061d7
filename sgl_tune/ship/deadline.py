"""An end to waiting, whoever is waited for: a peer that sends a byte a minute is never silent for long."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):
    """What was waited for did not come in time."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Not to be nested. In a thread other than the first there is no such clock, and no end but the
    socket's own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
