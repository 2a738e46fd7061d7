"""A log becomes the report of one of its starts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from sgl_tune.errors import UsageError
from sgl_tune.log_lines import line_parser, log_pieces
from sgl_tune.start_report.listener import Listener
from sgl_tune.start_report.report import StartReport, report_of
from sgl_tune.units import human_age

_ANEW = ("server_args=", "Init torch distributed begin", "Init parallel begin", "Load weight begin")


def read_start(
    path: Path, ready: re.Pattern[str] | None, number: int | None, advance: Callable[[int], None]
) -> StartReport:
    """The last start in it, or the asked one."""
    listener, parse = Listener(ready), line_parser()
    for raw in log_pieces(path):
        advance(len(raw))
        if listener.is_over and not any(word in raw for word in _ANEW):
            continue  # a server that serves says much
        listener.hear(parse(raw))
        listener.see(raw)
    listener.finish()
    starts = [told for told in listener.starts if told.events]
    if not starts:
        raise _nothing_told(path, listener)
    if number is not None and not 1 <= number <= len(starts):
        raise UsageError(f"{path} tells of {len(starts)} starts, not of {number}", "--start counts from 1")
    told = starts[(number or len(starts)) - 1]
    if told.ready is None and path.is_file():
        told.notes[f"the file itself was last written {_age(path)}"] = None
    return report_of(told, number or len(starts), len(starts))


def parse_ready(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise UsageError(f"--ready {text}: no regular expression: {error}") from None


def _age(path: Path) -> str:
    """A log that goes on is written to: what one asks first of a start that hangs."""
    seconds = time.time() - path.stat().st_mtime
    return f"{human_age(seconds)} ago" if seconds >= 60 else "less than a minute ago"


def _nothing_told(path: Path, listener: Listener) -> UsageError:
    if listener.untimed:
        return UsageError(
            f"{path} has lines of a start, and none with a time",
            "collect it with its times: docker logs -t, or kubectl logs --timestamps",
        )
    return UsageError(
        f"{path} tells of no start of a server: none of its {listener.lines:,} lines is SGLang's",
        "give the server's own output, from its first line on",
    )
