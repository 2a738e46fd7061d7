"""The time of each line: the collector's clock where it has one, else the server's own."""

from __future__ import annotations

from datetime import timezone

from sgl_tune.log_lines import LogLine

BACK_SECONDS = 5.0  # by which lines of several processes come out of order
MOST_PROCESSES = 1_024


class Clock:
    """A clock that goes back for one process was set back for all: the time goes on from there."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], float] = {}
        self._now: dict[str, float] = {}
        self._shift: dict[str, float] = {}
        self._is_collected: set[str] = set()

    def read(self, group: str, line: LogLine) -> tuple[float | None, str]:
        """The line's time, None where no line had one yet, and a note where the clock went back."""
        if line.collected is not None:
            self._is_collected.add(group)
            seconds = line.collected.timestamp()
        elif line.logged is not None and group not in self._is_collected:
            seconds = line.logged.replace(tzinfo=timezone.utc).timestamp()
        else:
            return self._now.get(group), ""
        process, note = (group, line.source, line.rank), ""
        now = seconds + self._shift.get(group, 0.0)
        before = self._last.get(process, now)
        if now < before - BACK_SECONDS:
            self._shift[group] = before - seconds
            stamp = line.collected or line.logged
            note = f"the clock goes back by {before - now:.0f} s at {stamp:%Y-%m-%d %H:%M:%S}"
        now = max(now, before)
        if process in self._last or len(self._last) < MOST_PROCESSES:
            self._last[process] = now
        self._now[group] = now
        return now, note
