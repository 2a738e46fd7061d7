"""One start in a log: events with their times, each rank's memory, and progress bars, which show what the
tuner measured, and for how long by tqdm's own clock."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timezone
from typing import NamedTuple

from sgl_tune.log_lines import LogLine
from sgl_tune.server_log.ends import NO_SERVER, Death, Finding
from sgl_tune.server_log.marks import ARGUMENTS, Edge, Mark
from sgl_tune.server_log.rank_log import RankLog

_HOUR = 3600.0
_VLLM = ("EngineCore", "APIServer", "Worker_", "VllmWorker")  # what its processes print before a line
BACK_SECONDS = 5.0  # how far the lines of several processes may be out of order
MOST_PROCESSES = 1_024
SEVERAL_CLOCKS = "lines of several clocks stand among each other: kubectl logs --prefix names their pods"
HEADS = frozenset(("[Aut", "Deep", "Capt", "Comp", "Load", "Mult"))  # how progress bars begin
_BAR = re.compile(
    r"(?P<what>\[AutoTuner\]: Tuning (?P<op>\S{1,200})|DeepGEMM warmup|Capturing|Compiling|Loading|Multi)"
    r".{0,400}?(?P<done>\d{1,9})/(?P<total>\d{1,9}) \[(?P<elapsed>[\d:]{4,12})<"
    r"(?:[^\r\n,]{0,20}, +(?P<rate>\d{1,9}\.\d+)(?P<unit>profile/s|s/profile))?"
)


@dataclass
class Bars:
    """The bars of one start. A bar rewrites its line, or becomes many lines if a log collector splits it.
    Both tables are indexed by the event that began a build. `limits`: the duration of its own bar.
    `tuned_after`: the seconds of tuning after it."""

    count: int = 0
    profiled: dict[str, int] = field(default_factory=dict)
    tuned_seconds: float = 0.0
    limits: dict[int, float] = field(default_factory=dict)
    tuned_after: dict[int, float] = field(default_factory=dict)
    _last: dict[str, tuple[int, int, float]] = field(default_factory=dict)

    def hear(self, text: str, build: int | None) -> None:
        bar = _BAR.match(text)
        if bar is None:
            return
        self.count += 1
        if bar["op"]:
            tuned = self._tuned(bar["op"].rstrip(":"), int(bar["done"]), int(bar["total"]), _measured(bar))
            self.tuned_seconds += tuned
            if build is not None and tuned:
                self.tuned_after[build] = self.tuned_after.get(build, 0.0) + tuned
        elif build is not None and bar["what"] == "DeepGEMM warmup" and bar["done"] == bar["total"]:
            self.limits[build] = _seconds(bar["elapsed"])

    def _tuned(self, op: str, done: int, total: int, seconds: float) -> float:
        """Return the seconds that this line adds. tqdm repeats the end of a bar, which adds nothing."""
        before, under_way, until = self._last.get(op, (0, 0, 0.0))
        if done < total:
            under_way = total
        same = under_way == total and done >= before
        self.profiled[op] = self.profiled.get(op, 0) + done - (before if same else 0)
        self._last[op] = (done, under_way, max(seconds, until) if same else seconds)
        return max(0.0, seconds - (until if same else 0.0))


def _measured(bar: re.Match[str]) -> float:
    """Return a bar's seconds. tqdm shows whole seconds; at a bar's end, its rate is more exact."""
    elapsed = _seconds(bar["elapsed"])
    if bar["rate"] is None or bar["done"] != bar["total"] or float(bar["rate"]) <= 0:
        return elapsed
    rate = float(bar["rate"])
    exact = int(bar["total"]) * (rate if bar["unit"] == "s/profile" else 1 / rate)
    return exact if elapsed <= exact < elapsed + 1 else elapsed


def _seconds(text: str) -> float:
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)


class Speaker(NamedTuple):
    """A process in a pod or container. The server's own process and other loggers have no rank."""

    source: str
    rank: str

    @property
    def name(self) -> str:
        return f"{self.source} {self.rank}".strip() or "server"


class Event(NamedTuple):
    at: float
    speaker: Speaker
    mark: Mark
    said: dict[str, str]
    phase: str = ""


class Word(NamedTuple):
    at: float
    text: str


@dataclass
class Start:
    """One start in a log. `spoke`: each source's last line that shows no death. `is_launched`: by us."""

    began: float = 0.0
    ended: float = 0.0
    is_timed: bool = False
    is_launched: bool = False
    silence: Word | None = None
    events: list[Event] = field(default_factory=list)
    ranks: dict[Speaker, RankLog] = field(default_factory=dict)
    bars: Bars = field(default_factory=Bars)
    last_words: dict[Speaker, Word] = field(default_factory=dict)
    ready: Word | None = None
    server_args: dict[tuple[str, str], str] = field(default_factory=dict)  # by source and node
    deaths: list[Death] = field(default_factory=list)
    findings: dict[Finding, int] = field(default_factory=dict)
    spoke: dict[str, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def is_mixed(self) -> bool:
        return SEVERAL_CLOCKS in self.notes

    @property
    def end(self) -> float:
        return self.ended if self.ready is None else self.ready.at

    @property
    def shows_a_start(self) -> bool:
        is_another = any(one.kind.name == NO_SERVER or one.source.startswith(_VLLM) for one in self.deaths)
        return bool(self.ranks or self.ready or self.server_args or (self.deaths and not is_another))

    @property
    def capturing(self) -> str:
        """Return the graphs that are being captured, or ""."""
        opened = (event.phase for event in reversed(self.events) if event.mark.edge is Edge.opens)
        return next((phase for phase in opened if phase.endswith("graphs")), "")

    @property
    def speakers(self) -> set[Speaker]:
        return {event.speaker for event in self.events if event.speaker.rank}

    def facts(self, name: str) -> Iterator[Event]:
        return (event for event in self.events if event.mark.fact == name)


class Clock:
    """Turns the clocks of lines into seconds. If a clock is set back for one process, it is set back for
    all, and time goes on from there."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], float] = {}
        self._now: dict[str, float] = {}
        self._shift: dict[str, float] = {}
        self._is_collected: set[str] = set()
        self._stamps: dict[tuple[str, ...], float] = {}  # the last of a source, and of a process
        self._fell_from: dict[tuple[str, ...], float] = {}

    def read(self, group: str, line: LogLine) -> tuple[float | None, str]:
        """Return the line's time, or None if no line had one yet, and a note if the clock was set back."""
        if line.collected is not None:
            self._is_collected.add(group)
            seconds = line.collected.timestamp()
        elif line.logged is not None and group not in self._is_collected:
            seconds = line.logged.replace(tzinfo=timezone.utc).timestamp()
        else:
            return self._now.get(group), ""
        process, note = (group, line.source, line.rank), ""
        if self._is_mixed(process, seconds, line.text.startswith(ARGUMENTS.says)):
            note = SEVERAL_CLOCKS
        now = seconds + self._shift.get(group, 0.0)
        before = self._last.get(process, now)
        if now < before - BACK_SECONDS:
            self._shift[group] = before - seconds
            stamp = line.collected or line.logged
            note = note or f"the clock goes back by {before - now:.0f} s at {stamp:%Y-%m-%d %H:%M:%S}"
        now = max(now, before)
        if process in self._last or len(self._last) < MOST_PROCESSES:
            self._last[process] = now
        self._now[group] = now
        return now, note

    def _is_mixed(self, process: tuple[str, ...], seconds: float, begins: bool) -> bool:
        """Return whether lines of two clocks stand among each other: the time falls again and again, by more
        than a time zone, or returns by an hour at once."""
        source, stamps, tops = process[:2], self._stamps, self._fell_from
        last, before = stamps.get(process, seconds), stamps.get(source, seconds)
        if len(stamps) < 2 * MOST_PROCESSES or process in stamps:
            stamps[process] = stamps[source] = seconds
        found = seconds > before + _HOUR and seconds >= tops.get(source, math.inf) - BACK_SECONDS
        for key, stamp, least in ((process, last, BACK_SECONDS), (source, before, _HOUR)):
            if seconds < stamp - least and not begins:
                top = min(tops.get(key, math.inf), seconds + 15 * _HOUR)
                found |= key is process and stamp >= top - BACK_SECONDS
                tops[key] = stamp
        return found
