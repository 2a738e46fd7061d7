"""Lines go in, in their order; starts come out, each with what it tells."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from sgl_tune.log_lines import LogLine
from sgl_tune.start_report.bars import HEADS
from sgl_tune.start_report.marks import FIRST_LINE, HEAD, MARKS, Edge, Mark
from sgl_tune.start_report.told import Event, Speaker, Told, Word

MOST_EVENTS = 50_000  # of a start; a thousand ranks need as many
MOST_PROCESSES = 1_024
BACK_SECONDS = 5.0  # by which lines of several processes come out of order

_ENDS = Mark("", Edge.tells)  # a process that built something said something else


def _rows() -> dict[str, list[Mark]]:
    rows: dict[str, list[Mark]] = {}
    for mark in MARKS:
        rows.setdefault(mark.literal[:HEAD], []).append(mark)
    return rows


class Listener:
    """Lines go in, in their order; starts come out."""

    def __init__(self, ready: re.Pattern[str] | None = None) -> None:
        self.starts: list[Told] = []
        self.lines = self.untimed = 0
        self._rows = _rows()
        self._ready = ready
        self._now: dict[str, Told] = {}  # by pod, or by the nodes of one server
        self._nodes: set[str] = set()
        self._clock: dict[tuple[str, Speaker | None], float] = {}
        self._shift: dict[str, float] = {}
        self._is_collected: set[str] = set()
        self._building: dict[Speaker, int] = {}
        self._speakers: set[Speaker] = set()
        self._failed: dict[Speaker, Told] = {}
        self._passed: dict[Speaker, LogLine] = {}

    @property
    def is_over(self) -> bool:
        """Every start that was told of so far is ready."""
        begun = [told for told in self._now.values() if told.events or told.is_launched]
        return bool(begun) and all(told.ready is not None for told in begun)

    def launch(self, at: float) -> None:
        """A start of ours begins now, whatever its first line says."""
        self._begin("", at).is_launched = True

    def see(self, raw: str) -> None:
        """A line as it stands there, for what a bar rewrote in it."""
        if "Capturing" in raw:
            for told in self._now.values():
                told.bars.see(raw, told.capturing)

    def hear(self, line: LogLine, at: float | None = None) -> None:
        if at is not None:  # of a server of ours: a table that it prints is no pod's prefix
            line = line._replace(source="")
        self.lines += 1
        if not line.text or line.text.isspace():
            return
        head = line.text[:HEAD]
        rows = self._rows.get(head)
        if rows is None and line.is_entry and at is None and self._passes_by(line):
            return
        stamp = line.collected or line.logged
        if stamp is None:
            self._error(line)
            if at is None and rows is None and head not in HEADS and self._ready is None:
                return
        group = "" if line.source in self._nodes else line.source
        now = self._time(group, line) if at is None else at
        if now is None:
            self.untimed += rows is not None and any(mark.pattern.match(line.text) for mark in rows)
            return
        told = self._now.get(group)
        if told is None:
            if len(self._now) >= MOST_PROCESSES:
                return
            told = self._begin(group, now)
        speaker = Speaker(line.source, line.rank)
        self._passed.pop(speaker, None)
        if told.is_launched and line.logged is not None and not told.events:
            told.events.append(Event(now, Speaker(line.source, ""), FIRST_LINE, {}))
        text = line.text if line.is_entry else _bare(line.text)
        if text[:HEAD] in HEADS:
            self._bar(told, text)
        if self._building and (stamp is not None or at is not None):
            self._stop_building(told, speaker, now)
        for mark in self._rows.get(text[:HEAD], ()):
            match = mark.pattern.match(text)
            if match is not None:
                told = self._take(told, group, Event(now, speaker, mark, _said(match, mark, text)), text)
                break
        if self._ready is not None and told.ready is None and self._ready.search(line.text):
            told.ready, told.ready_by = now, line.text[:200]
        if stamp is not None or at is not None:
            told.ended = max(told.ended, now)
            if speaker in told.last_words or len(told.last_words) < MOST_PROCESSES:
                told.last_words[speaker] = Word(now, text[:400])

    def finish(self) -> None:
        """What was only passed by counts as the last word of who said it."""
        for group in list(self._now):
            self._settle(group)

    def _passes_by(self, line: LogLine) -> bool:
        """Nearly all lines tell nothing: of each process the last is kept, and its time read in the end."""
        group = "" if line.source in self._nodes else line.source
        if self._building or self._ready is not None or group not in self._now:
            return False
        key = Speaker(line.source, line.rank)
        if key not in self._passed and len(self._passed) >= MOST_PROCESSES:
            return False
        self._passed[key] = line
        return True

    def _settle(self, group: str) -> None:
        told = self._now[group]
        for speaker in [
            s for s in self._passed if group in (s.source, "" if s.source in self._nodes else None)
        ]:
            line = self._passed.pop(speaker)
            now = self._time(group, line)
            if now is not None:
                told.ended = max(told.ended, now)
                told.last_words[speaker] = Word(now, line.text[:400])

    def _time(self, group: str, line: LogLine) -> float | None:
        """The collector's clock where it has one. One that goes back for a process was set back for all."""
        if line.collected is not None:
            self._is_collected.add(group)
            seconds = line.collected.timestamp()
        elif line.logged is not None and group not in self._is_collected:
            seconds = line.logged.replace(tzinfo=timezone.utc).timestamp()
        else:
            return self._clock.get((group, None))
        speaker = (group, Speaker(line.source, line.rank))
        now = seconds + self._shift.get(group, 0.0)
        before = self._clock.get(speaker, now)
        if now < before - BACK_SECONDS:
            self._shift[group] = before - seconds
            if group in self._now:
                text = f"the clock goes back by {before - now:.0f} s, {_clock_text(line)}"
                self._now[group].notes[text] = None
        now = max(now, before)
        if speaker in self._clock or len(self._clock) < MOST_PROCESSES:
            self._clock[speaker] = now
        self._clock[(group, None)] = now
        return now

    def _begin(self, group: str, at: float) -> Told:
        if group in self._now:
            self._settle(group)
        told = self._now[group] = Told(began=at, ended=at)
        self.starts.append(told)
        return told

    def _take(self, told: Told, group: str, event: Event, text: str) -> Told:
        if self._is_new_start(told, event):
            told = self._begin(group, event.at)
        if event.mark.says == _ARGS and not _is_one_node(text):
            told = self._joined(told, event.speaker.source)
        if event.mark.says == _ARGS:
            told.server_args = told.server_args or text
            told.args_of.add(event.speaker.source)
        if event.mark.fact in ("ready", "loaded") and self._ready is None and told.ready is None:
            told.ready, told.ready_by = event.at, text[:200]
        if event.mark.fact == "loaded":
            told.measured = int(event.said["count"])
        if len(told.events) >= MOST_EVENTS or not self._is_known(event.speaker):
            told.notes[f"more than {MOST_EVENTS:,} lines of a start: the later ones are left out"] = None
            return told
        told.events.append(event)
        if event.mark.edge is Edge.builds:
            self._building[event.speaker] = len(told.events) - 1
        if event.mark.fact == "failure":
            self._failed[event.speaker] = told
        return told

    def _joined(self, told: Told, source: str) -> Told:
        """The nodes of one server start together, whatever pod each is in."""
        if source in self._nodes or not source:
            return told
        self._nodes.add(source)
        return self._now.setdefault("", self._now.pop(source, told))

    def _is_known(self, speaker: Speaker) -> bool:
        if len(self._speakers) < MOST_PROCESSES:
            self._speakers.add(speaker)
        return speaker in self._speakers

    def _is_new_start(self, told: Told, event: Event) -> bool:
        if event.mark.says == _ARGS:
            return event.speaker.source in told.args_of
        opens = event.mark.edge is Edge.opens and event.mark.phase in ("communicator", "weights")
        return opens and told.ready is not None

    def _stop_building(self, told: Told, speaker: Speaker, at: float) -> None:
        """What names no rank may be anybody's: any line ends it. A rank's own building ends with its own."""
        for builder in [b for b in self._building if not b.rank or b == speaker]:
            del self._building[builder]
            if len(told.events) < MOST_EVENTS:
                told.events.append(Event(at, builder, _ENDS, {}))

    def _error(self, line: LogLine) -> None:
        """A traceback has no time; its last line, not indented, says what happened."""
        speaker = Speaker(line.source, line.rank)
        if speaker in self._failed and _ERROR.match(line.text):
            self._failed.pop(speaker).errors[speaker] = line.text[:1000]

    def _bar(self, told: Told, text: str) -> None:
        before = told.bars.tuned_seconds
        took = told.bars.hear(text)
        begun = next(reversed(self._building.values()), None)
        if begun is None:
            return
        if took is not None:
            told.build_limits[begun] = took
        tuned = told.bars.tuned_seconds - before
        if tuned:
            told.tuned_after[begun] = told.tuned_after.get(begun, 0.0) + tuned


_ARGS = "server_args="
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,150}(?:Error|Exception|Interrupt|Exit)\b")
_ELAPSED = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,7}(?:\.\d{1,6})?)")
_LOGGER = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})? "
    r"(?:- [A-Z]{4,8} - )?(?:[\w.-]{1,80}:\d{1,6} - )?(?:[A-Za-z_][\w.]{0,120}:? )?"
)


def _said(match: re.Match[str], mark: Mark, text: str) -> dict[str, str]:
    said = {name: value for name, value in match.groupdict().items() if value is not None}
    if mark.edge is Edge.closes and (took := _ELAPSED.search(text)):
        said["elapsed"] = took[1]
    return said


def _bare(text: str) -> str:
    """Without what other loggers put before their words: time, level, place and name."""
    head = _LOGGER.match(text)
    return text[head.end() :] if head else text


def _is_one_node(text: str) -> bool:
    nodes = re.search(r"\bnnodes'?[=:] ?(\d{1,6})\b", text)
    return nodes is None or nodes[1] == "1"


def _clock_text(line: LogLine) -> str:
    stamp = line.collected or line.logged
    return f"at {stamp:%Y-%m-%d %H:%M:%S}" if isinstance(stamp, datetime) else ""
