"""Ctrl-C, SIGTERM and SIGHUP as one exception in the main thread, and the end that each of them calls for."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from sgl_tune.errors import Ended

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption(BaseException):
    """No `Exception`: whoever mends what goes wrong with the work has no say in this."""

    def __init__(self, number: int, said: str | None = None) -> None:
        self.number, self.said = number, said
        super().__init__(str(self))

    def saying(self, said: str) -> Interruption:
        return type(self)(self.number, said)

    def __str__(self) -> str:
        what = f"interrupted by {signal.Signals(self.number).name}"
        return f"{what}: {self.said}" if self.said else what


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal raises; of later ones only Ctrl-C is heard, and ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]  # as under nohup

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in heard:
            signal.signal(other, signal.SIG_DFL if other == signal.SIGINT else signal.SIG_IGN)
        raise Interruption(number)

    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


@contextmanager
def ending(tell: Callable[[str], None]) -> Iterator[None]:
    """Interruptible, and where a signal comes its last words, and the end of the command."""
    try:
        with interruptible():
            yield
    except Interruption as interruption:
        tell(str(interruption))
        raise Ended(end_by(interruption)) from None


def end_by(interruption: Interruption) -> int:
    """As whoever sent the signal expects: 130 after Ctrl-C, an end by the signal itself after another."""
    if interruption.number == signal.SIGINT:
        return INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    signal.signal(interruption.number, signal.SIG_DFL)
    os.kill(os.getpid(), interruption.number)
    return INTERRUPTED
