"""stdout and stderr whose writes never raise. A write error is kept until the command ends."""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from typing import Any, TextIO

_STAND_INS = "sgl_tune.stand_ins"
_SIGNS = {"±": "+-", "…": "..."}


def _stand_in(error: UnicodeError) -> tuple[str | bytes, int]:
    """Codec error handler: write our own symbols as ASCII, and escape any other character."""
    if isinstance(error, UnicodeEncodeError) and (sign := _SIGNS.get(error.object[error.start])):
        return sign, error.start + 1
    return codecs.backslashreplace_errors(error)


class Unfailing(io.FileIO):
    """A stream that drops everything after a failed write. `lost`: the error of that write."""

    lost: OSError | None = None

    def write(self, data: Any, /) -> int:
        if self.lost is None:
            try:
                while (written := super().write(data)) is None:  # the pipe was made non-blocking
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.lost = error
        return memoryview(data).nbytes


def steady() -> None:
    """Make the standard streams usable. A closed one is opened on /dev/null: no file may take its number."""
    codecs.register_error(_STAND_INS, _stand_in)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _unfailing(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _unfailing(2, sys.stderr)


def _unfailing(descriptor: int, stream: TextIO | None) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(Unfailing(descriptor, "wb", closefd=False)),
        encoding=stream.encoding if stream else "utf-8",
        errors=_STAND_INS,  # file names may be no text, and a terminal may lack our symbols
        line_buffering=descriptor == 2 or os.isatty(descriptor),
    )


def lost_output() -> str | None:
    """Return why stdout was not fully written, or None. A reader that closed the pipe is no error."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    lost = raw.lost if isinstance(raw, Unfailing) else None
    return lost.strerror if lost and lost.errno != errno.EPIPE else None
