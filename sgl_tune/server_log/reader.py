"""Read the lines of a server's log in order, and collect the starts that they show."""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sgl_tune.log_lines import LogLine, line_parser, log_pieces, without_logger
from sgl_tune.server_log.ends import FRAME, Frame, continued, death_of, finding_of
from sgl_tune.server_log.marks import ARGUMENTS, FIRST_LINE, HEAD, MARKS, NOTHING_BUILT, Edge, Mark
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.server_log.start import HEADS, MOST_PROCESSES, Clock, Event, Speaker, Start, Word

_MOST_EVENTS = 50_000  # per start; 1,000 ranks need as many
_MOST_DEATHS = 1_024
_MOST_FINDINGS = 64
_MOST_WRAPPED = 8  # lines of one message
_HIT = "Traceback (most recent call last):"
_FLAG = re.compile(r"[\[ ](--[a-z][a-z0-9-]{1,80})")
_BATCHES = ("Decode batch", "Prefill batch")
_SERVING = (*_BATCHES, "INFO: ")
_OF_MEMORY = frozenset(("communicator", "weights", "kv pool", "tactics", "graphs", "scheduler", ""))
_NODE = re.compile(r"\bnode_rank'?[=:] ?(\d{1,5})")
_NODES = re.compile(r"\bnnodes'?[=:] ?(\d{1,6})\b")
_ROWS = {head: [mark for mark in MARKS if mark.head == head] for head in {mark.head for mark in MARKS}}
_ELAPSED = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,7}(?:\.\d{1,6})?)")


def read_starts(
    path: Path, ready: re.Pattern[str] | None = None, advance: Callable[[int], None] = lambda count: None
) -> "Reader":
    reader, parse = Reader(ready), line_parser()
    for raw in log_pieces(path):
        advance(len(raw))
        reader.hear(parse(raw) if raw != "\n" else LogLine(""))
    return reader


class Reader:
    """Collects starts. `ready`: the line that says ready, if it is not SGLang's."""

    def __init__(self, ready: re.Pattern[str] | None = None) -> None:
        self.starts: list[Start] = []
        self.lines = 0
        self._ready = ready
        self._now: dict[str, Start] = {}  # by pod, or by the nodes of one server
        self._died: dict[str, Start] = {}  # the start before, if it died
        self._nodes: set[str] = set()
        self._clock = Clock()
        self._building: dict[Speaker, int] = {}
        self._flags: dict[str, None] = {}  # flags in a usage text of argparse
        self._before = ""
        self._begun = 0  # the line of the last death
        self._frames: dict[str, deque[Frame]] = {}  # the current traceback's, by source

    @property
    def latest(self) -> list[Start]:
        """Return the last start of each pod, or of the nodes that serve together. If it still runs and the
        start before it died, return the one before, because the user asks why a container restarts."""
        pairs = ((start, self._died.get(group)) for group, start in self._now.items() if start.shows_a_start)
        return [
            before if before and not start.deaths and not start.ready else start for start, before in pairs
        ]

    @property
    def is_ready(self) -> bool:
        """Whether every start so far is ready."""
        begun = [start for start in self._now.values() if start.events or start.is_launched]
        return bool(begun) and all(start.ready is not None for start in begun)

    def launch(self, at: float) -> None:
        """Begin a start now, because we start the server ourselves; its first line does not matter."""
        start = self._begin("")
        start.began = start.ended = at
        start.is_launched = start.is_timed = True

    def hear(self, line: LogLine, at: float | None = None) -> None:
        """Read one line of a log. `at`: when it arrived, from a server that we started."""
        self.lines += 1
        text = line.text
        if not text or text.isspace():
            return
        if at is not None:  # in our own server's output no prefix names a pod
            line = line._replace(source="")
        group = "" if line.source in self._nodes else line.source
        start = self._now.get(group)
        if start is None:
            if len(self._now) >= MOST_PROCESSES:
                return
            start = self._begin(group)
        elif start.ready and not start.deaths and text.startswith(_SERVING):
            return  # nearly all lines while serving
        now, note = (at, "") if at is not None else self._clock.read(group, line)
        if note:
            start.notes[note] = None
        has_time = at is not None or line.collected is not None or line.logged is not None
        if now is not None and not start.is_timed:
            start.began = start.ended = now
            start.is_timed = True
        speaker = Speaker(line.source, line.rank)
        text = text if line.is_entry else without_logger(text)
        if start.is_launched and line.logged is not None and not start.events:
            start.events.append(Event(now or 0.0, Speaker("", ""), FIRST_LINE, {}, FIRST_LINE.phase))
        if text[:HEAD] in HEADS:
            start.bars.hear(text, next(reversed(self._building.values()), None))
        if self._building and has_time:
            self._stop_building(start, speaker, now or 0.0)
        start = self._marked(start, group, speaker, line, text, now)
        if self._ready and start.ready is None and self._ready.search(line.text):
            start.ready = Word(now or 0.0, line.text[:200])
        self._judge(start, line, text, now or 0.0)
        if has_time and now is not None:
            if start.silence is None or now - start.ended > start.silence.at:
                start.silence = Word(now - start.ended, text[:200])
            start.ended = max(start.ended, now)
            whose = speaker if line.is_entry else Speaker(line.source, "")  # any rank may have printed it
            if whose in start.last_words or len(start.last_words) < MOST_PROCESSES:
                start.last_words[whose] = Word(now, text[:400])

    def _begin(self, group: str) -> Start:
        if group in self._now and self._now[group].deaths:
            self._died[group] = self._now[group]
        start = self._now[group] = Start()
        self.starts.append(start)
        return start

    def _marked(
        self, start: Start, group: str, speaker: Speaker, line: LogLine, text: str, now: float | None
    ) -> Start:
        """Return the start that the line belongs to, which may be a new one."""
        forms = (text, text[5:].lstrip()) if text.startswith("INFO: ") else (text,)  # a tokenizer's worker
        marks = ((mark, mark.pattern.match(form)) for form in forms for mark in _ROWS.get(form[:HEAD], ()))
        mark, match = next((found for found in marks if found[1]), (ARGUMENTS, None))
        if match is None:
            if "Capturing" in text and speaker in start.ranks:
                start.ranks[speaker].see_bar(text)
            return start
        node = _NODE.search(text) if mark is ARGUMENTS else None
        key = speaker.source, node[1] if node else ""
        if self._is_new(start, mark, key):
            before, start = start, self._begin(group)
            start.began = start.ended = before.ended if now is None else now
            start.is_timed = before.is_timed
        if mark is ARGUMENTS:
            if (nodes := _NODES.search(text)) and nodes[1] != "1":
                start = self._joined(start, speaker.source)
            start.server_args.setdefault(key, text)
        for waiting in start.ranks.values() if "warm-up request" in mark.then else ():
            waiting.phase = "warm-up request"  # the server listens, so the ranks are ready
        said = {name: value for name, value in match.groupdict().items() if value is not None}
        if mark.edge is Edge.closes and (took := _ELAPSED.search(text)):
            said["elapsed"] = took[1]
        rank = start.ranks.get(speaker) or RankLog(*speaker)
        phase = rank.phase_of(mark, said)
        is_bare = mark.says == "Load weight end" and line.text == text and not speaker.rank and not rank.steps
        if (line.is_entry or is_bare) and mark.phase in _OF_MEMORY and len(start.ranks) < MOST_PROCESSES:
            start.ranks[speaker] = rank
            rank.take(mark, phase, text)
            rank.phase = rank.phase if line.is_entry else "setup"  # one line alone shows no phase
        if start.deaths and line.is_entry and mark.edge in (Edge.closes, Edge.passes):
            self._survived(start, speaker)
        if mark.fact == "ready" and self._ready is None and start.ready is None:
            start.ready = Word(now or 0.0, text[:200])
        if now is None:
            return start
        is_known = not speaker.rank or speaker in start.ranks or len(start.ranks) < MOST_PROCESSES
        if len(start.events) >= _MOST_EVENTS or not is_known:
            start.notes[f"more than {_MOST_EVENTS:,} lines of a start: the later ones are left out"] = None
            return start
        start.events.append(Event(now, speaker, mark, said, phase))
        if mark.edge is Edge.builds:
            self._building[speaker] = len(start.events) - 1
        return start

    def _is_new(self, start: Start, mark: Mark, key: tuple[str, str]) -> bool:
        """Whether a line begins a new start, as when a pod prints its arguments again. Nodes of one server
        each print them once."""
        if mark is ARGUMENTS:
            return key in start.server_args
        opens = mark.edge is Edge.opens and mark.phase in ("communicator", "weights")
        return opens and start.ready is not None

    def _joined(self, start: Start, source: str) -> Start:
        """Return the start that the nodes of one server share, whatever pods they are in."""
        if source in self._nodes or not source:
            return start
        self._nodes.add(source)
        self._now.pop(source, None)
        if (one := self._now.setdefault("", start)) is not start:
            self.starts.remove(start)
        return one

    def _stop_building(self, start: Start, speaker: Speaker, at: float) -> None:
        """End the builds of modules that the line ends: any line ends a build by a process without a rank,
        and a rank's own line ends the rank's build."""
        for builder in [one for one in self._building if not one.rank or one == speaker]:
            del self._building[builder]
            if len(start.events) < _MOST_EVENTS:
                start.events.append(Event(at, builder, NOTHING_BUILT, {}))

    def _judge(self, start: Start, line: LogLine, text: str, at: float) -> None:
        """Collect deaths and findings, and drop deaths after which the server went on."""
        frames = self._frames.get(line.source)
        if line.is_entry:
            if frames:
                frames.clear()
            if start.deaths and text.startswith(_BATCHES):
                self._survived(start, Speaker(line.source, line.rank))
                start.deaths = [death for death in start.deaths if death.kind.name != "compiler"]
        elif frame := FRAME.match(line.text):
            calls = self._frames.setdefault(line.source, deque(maxlen=64))
            calls.append(Frame(*frame.groups()))
            last = start.deaths[-1] if start.deaths else None
            if last and last.text.endswith(_HIT) and last.source == line.source:
                start.deaths[-1] = replace(last, frames=tuple(calls))
            return
        elif start.deaths and self.lines - self._begun < _MOST_WRAPPED and self._went_on(start, line):
            return
        elif frames and line.text.startswith("    ") and not frames[-1].code:
            frames[-1] = frames[-1]._replace(code=line.text.strip()[:200])
        rank = start.ranks.get(Speaker(line.source, line.rank))
        phase = "ready" if start.ready else rank.phase if rank else "setup"
        if died := death_of(line, self.lines, phase, frames or (), at, self._flags):
            if rank and died.numbers and died.numbers.shows_free:
                rank.see_free(died.numbers.free_bytes)
            if len(start.deaths) < _MOST_DEATHS:
                start.deaths.append(died)
                self._begun = self.lines
        elif line.is_entry or line.text.startswith("INFO: "):
            start.spoke[line.source] = self.lines
        elif line.text.startswith("usage: " if not self._flags else " ") and len(self._flags) < _MOST_EVENTS:
            self._flags |= dict.fromkeys(_FLAG.findall(line.text))
        if (finding := finding_of(text, self._before)) and len(start.findings) < _MOST_FINDINGS:
            start.findings[finding] = start.findings.get(finding, 0) + 1
        self._before = text

    def _went_on(self, start: Start, line: LogLine) -> bool:
        """Whether the line is a part of torch's message that a terminal or a page broke."""
        death = start.deaths[-1]
        whole = continued(death, line.text) if death.source == line.source else None
        start.deaths[-1] = whole or death
        return whole is not None

    def _survived(self, start: Start, speaker: Speaker) -> None:
        """Drop a rank's deaths, because the rank went on after what was logged."""
        start.deaths = [death for death in start.deaths if (death.source, death.rank) != speaker]
