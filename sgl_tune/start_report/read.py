"""Make the report of one start in a log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from sgl_tune.errors import UsageError
from sgl_tune.server_log.reader import read_starts
from sgl_tune.start_report.report import StartReport, report_of
from sgl_tune.units import human_age


def read_start(
    path: Path, ready: re.Pattern[str] | None, number: int | None, advance: Callable[[int], None]
) -> StartReport:
    """Return the report of the last start, or of the requested one."""
    reader = read_starts(path, ready, advance)
    timed = [start for start in reader.starts if start.events]
    starts = timed or [start for start in reader.starts if start.deaths and start.shows_a_start]
    if not starts and any(start.shows_a_start for start in reader.starts):
        raise UsageError(
            f"{path} has lines of a start, and none with a time",
            "collect it with its times: docker logs -t, or kubectl logs --timestamps",
        )
    if not starts:
        raise UsageError(
            f"{path} shows no start of a server: none of its {reader.lines:,} lines is SGLang's",
            "give the server's own output, from its first line on",
        )
    if number is not None and not 1 <= number <= len(starts):
        raise UsageError(f"{path} shows {len(starts)} starts, not {number}", "--start counts from 1")
    start = starts[(number or len(starts)) - 1]
    if start.is_mixed:  # each second would be one of several servers
        start.events, start.is_timed, start.began, start.ended, start.last_words = [], False, 0.0, 0.0, {}
    if start.ready is None and not start.deaths and path.is_file():
        start.notes[f"the file itself was last written {_age(path)}"] = None
    return report_of(start, number or len(starts), len(starts))


def parse_ready(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise UsageError(f"--ready {text}: no regular expression: {error}") from None


def _age(path: Path) -> str:
    """Return when a log was last written: the first question about a start that hangs."""
    seconds = time.time() - path.stat().st_mtime
    return f"{human_age(seconds)} ago" if seconds >= 60 else "less than a minute ago"
