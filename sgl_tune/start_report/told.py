"""What a log tells of each start in it: the lines of the table with their times, and facts beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from sgl_tune.log_lines import LogLine
from sgl_tune.start_report.compilers import Turn
from sgl_tune.start_report.marks import FIRST_LINE, HEAD, MARKS, Edge, Mark
from sgl_tune.start_report.written import Written

MOST_EVENTS = 50_000  # of a start; a thousand ranks need as many
MOST_PROCESSES = 1_024
BACK_SECONDS = 5.0  # by which lines of several processes come out of order
_BAR = re.compile(
    r"(?P<what>\[AutoTuner\]: Tuning (?P<op>\S{1,200})|DeepGEMM warmup|Capturing|Compiling|Loading|Multi)"
    r".{0,400}?(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{4,12})<"
)
_BAR_HEADS = frozenset(("[Aut", "Deep", "Capt", "Comp", "Load", "Mult"))


class Speaker(NamedTuple):
    """A process, of a pod or container, by its rank: the server's own has none, nor has who logs elsewise."""

    source: str
    rank: str


class Event(NamedTuple):
    at: float
    speaker: Speaker
    mark: Mark
    said: dict[str, str]


class Word(NamedTuple):
    at: float
    text: str


@dataclass
class Told:
    """One start."""

    began: float
    events: list[Event] = field(default_factory=list)
    last_words: dict[Speaker, Word] = field(default_factory=dict)
    ended: float = 0.0
    ready: float | None = None
    ready_by: str = ""
    server_args: str | None = None
    args_of: set[str] = field(default_factory=set)
    profiled: dict[str, int] = field(default_factory=dict)
    measured: int | None = None
    bars: int = 0
    build_limits: dict[int, float] = field(default_factory=dict)  # by the event: what its bar says it took
    errors: dict[Speaker, str] = field(default_factory=dict)  # the last line of the traceback that failed it
    notes: dict[str, None] = field(default_factory=dict)
    is_launched: bool = False  # by us: its beginning is known, and what it compiles and writes is seen
    watched: list[Turn] = field(default_factory=list)
    written: tuple[Written, ...] = ()

    @property
    def ranks(self) -> set[Speaker]:
        return {event.speaker for event in self.events if event.speaker.rank}


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

    @property
    def is_over(self) -> bool:
        """Every start that was told of so far is ready."""
        return bool(self._now) and all(told.ready is not None for told in self._now.values())

    def launch(self, at: float) -> None:
        """A start of ours begins now, whatever its first line says."""
        self._begin("", at).is_launched = True

    def hear(self, line: LogLine, at: float | None = None) -> None:
        self.lines += 1
        head = line.text[:HEAD]
        rows = self._rows.get(head)
        stamp = line.collected or line.logged
        if stamp is None:
            self._error(line)
            if at is None and rows is None and head not in _BAR_HEADS and self._ready is None:
                return
        group = "" if line.source in self._nodes else line.source
        now = self._time(group, line) if at is None else at
        if now is None:
            self.untimed += rows is not None and any(mark.pattern.match(line.text) for mark in rows)
            return
        told = self._now.get(group)
        if told is None:
            told = self._begin(group, now)
        speaker = Speaker(line.source, line.rank)
        if told.is_launched and line.is_entry and not told.events:
            told.events.append(Event(now, Speaker(line.source, ""), FIRST_LINE, {}))
        if self._building and (stamp is not None or at is not None):
            self._stop_building(told, speaker, now)
        text = line.text if line.is_entry else _bare(line.text)
        for mark in self._rows.get(text[:HEAD], ()):
            match = mark.pattern.match(text)
            if match is not None:
                told = self._take(told, group, Event(now, speaker, mark, _said(match, mark, text)), text)
                break
        else:
            if text[:HEAD] in _BAR_HEADS:
                self._bar(told, text)
        if self._ready is not None and told.ready is None and self._ready.search(line.text):
            told.ready, told.ready_by = now, line.text[:200]
        if stamp is not None or at is not None:
            told.ended = max(told.ended, now)
            if speaker in told.last_words or len(told.last_words) < MOST_PROCESSES:
                told.last_words[speaker] = Word(now, text[:400])

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
        told = self._now[group] = Told(began=at, ended=at)
        self.starts.append(told)
        return told

    def _take(self, told: Told, group: str, event: Event, text: str) -> Told:
        if self._is_new_start(told, event):
            if event.mark.says == _ARGS and not _is_one_node(text):
                self._nodes.add(event.speaker.source)
                group = ""
            told = self._begin(group, event.at)
        if event.mark.says == _ARGS:
            told.server_args = told.server_args or text
            told.args_of.add(event.speaker.source)
        if len(told.events) >= MOST_EVENTS or not self._is_known(event.speaker):
            told.notes[f"more than {MOST_EVENTS:,} lines of a start: the later ones are left out"] = None
            return told
        told.events.append(event)
        if event.mark.edge is Edge.builds:
            self._building[event.speaker] = len(told.events) - 1
        if event.mark.fact == "failure":
            self._failed[event.speaker] = told
        if event.mark.fact in ("ready", "loaded") and self._ready is None and told.ready is None:
            told.ready, told.ready_by = event.at, text[:200]
        if event.mark.fact == "loaded":
            told.measured = int(event.said["count"])
        return told

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
        bar = _BAR.match(text)
        if bar is None:
            return
        told.bars += 1
        if bar["op"]:
            told.profiled[bar["op"].rstrip(":")] = told.profiled.get(bar["op"].rstrip(":"), 0) + int(
                bar["done"]
            )
        elif bar["what"] == "DeepGEMM warmup" and bar["done"] == bar["total"]:
            begun = next((i for i in reversed(self._building.values())), None)
            if begun is not None:
                told.build_limits[begun] = _elapsed(bar["elapsed"])


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


def _elapsed(text: str) -> float:
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)


def _clock_text(line: LogLine) -> str:
    stamp = line.collected or line.logged
    return f"at {stamp:%Y-%m-%d %H:%M:%S}" if isinstance(stamp, datetime) else ""


def facts(told: Told, name: str) -> Iterator[Event]:
    return (event for event in told.events if event.mark.fact == name)
