"""Turn Ctrl-C, SIGTERM and SIGHUP into one exception in the main thread, and end as each of them requires."""

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
    """An interruption. It is no `Exception`, so that code that handles failures does not catch it."""

    def __init__(self, number: int, said: str | None = None) -> None:
        self.number, self.said = number, said
        super().__init__(str(self))

    def saying(self, said: str) -> "Interruption":
        return type(self)(self.number, said)

    def __str__(self) -> str:
        what = f"interrupted by {signal.Signals(self.number).name}"
        return f"{what}: {self.said}" if self.said else what


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise at the first signal. Afterwards only Ctrl-C is accepted; it ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]  # ignored under nohup

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
    """Make the block interruptible; after a signal, print its message and end the command."""
    try:
        with interruptible():
            yield
    except Interruption as interruption:
        tell(str(interruption))
        raise Ended(end_by(interruption)) from None


def end_by(interruption: Interruption) -> int:
    """End as the sender of the signal expects: with 130 after Ctrl-C, else by the signal itself."""
    if interruption.number == signal.SIGINT:
        return INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    signal.signal(interruption.number, signal.SIG_DFL)
    os.kill(os.getpid(), interruption.number)
    return INTERRUPTED
