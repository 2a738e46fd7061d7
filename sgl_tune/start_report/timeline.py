"""The seconds of a start, each given to one phase: that of the rank everybody waits for.

Ranks meet: each line that all of them print is a meeting, over when the last has printed it. Until then the
rank that is behind holds the start up, and what it does is what the second was spent on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from sgl_tune.start_report.marks import Edge
from sgl_tune.start_report.phases import PHASES, UNEXPLAINED
from sgl_tune.start_report.told import Event, Speaker, Told

_MOST_MOMENTS = 5_000
_MOST_TOLD = 2_000
_ALWAYS = 2  # depth from which a line without a rank is heard beside the ranks'


class Span(NamedTuple):
    phase: str
    begin: float
    end: float
    what: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass
class _Track:
    """What one process did: one span after the other, and what a line told afterwards on top of them."""

    spans: list[Span] = field(default_factory=list)
    told: list[Span] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    done: float | None = None

    def has_begun(self, moment: float) -> bool:
        return bool(self.marks) and self.marks[0][0] <= moment

    def at(self, moment: float) -> Span | None:
        number = bisect_right(self.spans, moment, key=lambda span: span.begin) - 1
        found = self.spans[number] if number >= 0 and moment < self.spans[number].end else None
        later = [span for span in self.told if span.begin <= moment < span.end]
        return max([*later, *([found] if found else [])], key=_rank_of, default=None)


class Timeline(NamedTuple):
    spans: tuple[Span, ...]
    after: str  # what it would have gone on with


def timeline(told: Told) -> Timeline:
    """From the start's first line to its last, one span after the other."""
    end = told.ended if told.ready is None else told.ready
    tracks = {speaker: _walked(told, speaker, end + 1) for speaker in _speakers(told)}
    ranks = {speaker: track for speaker, track in tracks.items() if speaker.rank}
    others = [track for speaker, track in tracks.items() if not speaker.rank]
    held = _Held(ranks)
    spans = []
    watched = _Track(told=[Span(turn.phase, turn.begin, turn.end, turn.what) for turn in told.watched])
    others.append(watched)
    moments = _moments([*tracks.values(), watched], told.began, end)
    for begin, after in pairwise(moments):
        name, what = _chosen(held, others, begin)
        spans.append(Span(name, begin, after, what))
    return Timeline(tuple(_joined(spans)), _chosen(held, others, end)[0])


def _moments(tracks: Iterable[_Track], began: float, end: float) -> list[float]:
    """When anything changes; of a thousand ranks' changes not every hundredth of a second."""
    edges = {edge for t in tracks for span in (*t.spans, *t.told) for edge in (span.begin, span.end)}
    moments = sorted({began, end, *(edge for edge in edges if began <= edge <= end)})
    if len(moments) <= _MOST_MOMENTS:
        return moments
    step = (end - began) / _MOST_MOMENTS
    return sorted({began, end, *(began + step * int((moment - began) / step) for moment in moments)})


def _chosen(held: _Held, others: Sequence[_Track], moment: float) -> tuple[str, str]:
    behind = held.back(moment)
    heard = [span for track in others if (span := track.at(moment))]
    if behind and all(track.has_begun(moment) for track in behind):
        heard = [span for span in heard if _depth(span) >= _ALWAYS]
    heard += [span for track in behind if (span := track.at(moment))]
    chosen = max(heard, key=_rank_of, default=None)
    return (chosen.phase or UNEXPLAINED, chosen.what) if chosen else (UNEXPLAINED, "")


class _Held:
    """Which ranks are behind, by the lines that all of them have printed."""

    def __init__(self, ranks: dict[Speaker, _Track]) -> None:
        self._ranks = ranks
        names = [Counter(name for _, name in track.marks) for track in ranks.values()]
        common = names[0] if names else Counter()
        for other in names[1:]:
            common = common & other
        self._passed = {speaker: _times(track.marks, common) for speaker, track in ranks.items()}
        self._first = min((t.marks[0][0] for t in ranks.values() if t.marks), default=None)
        done = [track.done for track in ranks.values() if track.done is not None]
        self._last = max(done) if done else None

    def back(self, moment: float) -> list[_Track]:
        """Nobody while no rank is at work: before their first line, and after their last is ready."""
        if self._first is None or moment < self._first or (self._last is not None and moment >= self._last):
            return []
        reached = {s: bisect_right(passed, moment) for s, passed in self._passed.items()}
        least = min(reached.values())
        return [self._ranks[speaker] for speaker, count in reached.items() if count == least]


def _times(marks: Sequence[tuple[float, str]], common: Counter[str]) -> list[float]:
    left, times = Counter(common), []
    for at, name in marks:
        if left[name] > 0:
            left[name] -= 1
            times.append(at)
    return times


def _heard_of_ranks(told: Told, speaker: Speaker) -> set[int]:
    """A pod's own process waits from the first line of its last rank until they are ready."""
    if speaker.rank:
        return set()
    first: dict[Speaker, int] = {}
    ready = set()
    for number, event in enumerate(told.events):
        if event.speaker.rank and event.speaker.source == speaker.source:
            first.setdefault(event.speaker, number)
            if event.mark.fact == "scheduler":
                ready.add(number)
    return {max(first.values()), *ready} if first else set()


def _begins_with(told: Told) -> tuple[str, ...]:
    """A model that is loaded without a server prints no server_args, and has no other processes."""
    is_server = told.server_args is not None or bool(told.ranks)
    first = ("imports",) if told.is_launched else ()
    return (*first, "arguments") if is_server else (*first, "arguments", "setup")


def _speakers(told: Told) -> list[Speaker]:
    return list(
        dict.fromkeys(
            [*(e.speaker for e in told.events), *(Speaker(e.speaker.source, "") for e in told.events)]
        )
    )


def _walked(told: Told, speaker: Speaker, end: float) -> _Track:
    track, walk = _Track(), _Walk(None if speaker.rank else told.began, _begins_with(told))
    heard = _heard_of_ranks(told, speaker)
    for number, event in enumerate(told.events):
        ready = event.mark.fact == "scheduler"
        if event.speaker != speaker and number not in heard:
            continue
        if speaker.rank and event.mark.edge in (Edge.opens, Edge.closes, Edge.passes):
            track.marks.append((event.at, event.mark.says))
        if ready and speaker.rank:
            track.done = event.at
        walk.step(event, told.build_limits.get(number), told.tuned_after.get(number, 0.0))
    walk.finish(end)
    track.spans, track.told = walk.spans, walk.told
    return track


class _Walk:
    """One process's events in their order: what is open, and what stands between."""

    def __init__(self, began: float | None, begins_with: tuple[str, ...]) -> None:
        self.spans: list[Span] = []
        self.told: list[Span] = []
        self._open: list[str] = []
        self._then = begins_with if began is not None else ()
        self._is_told = "imports" in begins_with
        self._building: Span | None = None  # without its end
        self._limit: float | None = None
        self._tuned = 0.0  # of the time since the build began
        self._at = began
        self._loaded = 0

    def step(self, event: Event, limit: float | None, tuned: float = 0.0) -> None:
        mark = event.mark
        is_met = mark.edge in (Edge.opens, Edge.closes, Edge.passes)
        self._pass(event.at, mark.phase if is_met else None)
        phase = self._phase(event)
        if is_met:
            self._then, self._is_told = (), True
        if mark.edge is Edge.opens:
            self._open.append(phase)
        elif mark.edge is Edge.closes:
            self._close(phase, event)
        elif mark.edge is Edge.passes:
            self._open.clear()
        elif mark.edge is Edge.took:
            self._tell(phase, event.at, event.said["seconds"])
        elif mark.edge is Edge.builds:
            what = event.said.get("module") or (self._building.what if self._building else "")
            self._building, self._limit = Span(phase, event.at, event.at, what), limit
            self._tuned = tuned
        if is_met and not self._open:
            self._then = mark.then
        if not mark.says:
            self._building = None

    def finish(self, end: float) -> None:
        """It goes on as it was."""
        self._pass(end, None)

    def _phase(self, event: Event) -> str:
        phase = event.mark.phase
        if phase == "weights":
            self._loaded += event.mark.edge is Edge.opens
            return "draft weights" if self._loaded > 1 else phase
        return phase

    def _close(self, phase: str, event: Event) -> None:
        if phase in self._open:
            while self._open.pop() != phase:
                pass
        elif event.said.get("elapsed"):
            self._tell(phase, event.at, event.said["elapsed"])

    def _tell(self, phase: str, at: float, seconds: str) -> None:
        if len(self.told) < _MOST_TOLD:
            self.told.append(Span(phase, at - float(seconds), at))

    def _pass(self, at: float, met: str | None) -> None:
        """The time since the last event, `met` by a line of this phase, or by none that ends anything."""
        begin, self._at = self._at, at
        if begin is None or at <= begin:
            return
        if self._building is not None:
            stop = min(at, begin + self._limit) if self._limit is not None else at
            stop = max(begin, min(stop, at - self._tuned))
            self.spans.append(self._building._replace(begin=begin, end=stop))
            begin, self._limit, self._tuned = stop, None, 0.0
        if at > begin:
            self.spans.append(Span(self._open[-1] if self._open else self._between(met), begin, at))

    def _between(self, met: str | None) -> str:
        if met is None:
            return self._then[0] if self._then and self._is_told else ""
        return next((name for name in self._then if met in PHASES[name].until), "")


def _depth(span: Span | None) -> int:
    return PHASES[span.phase].depth if span and span.phase else 0


def _rank_of(span: Span | None) -> tuple[int, bool]:
    if span is None or not span.phase:
        return (0, False)
    return (PHASES[span.phase].depth, not PHASES[span.phase].is_between)


def _joined(spans: Iterable[Span]) -> Iterable[Span]:
    last = None
    for span in spans:
        if last and (last.phase, last.what) == (span.phase, span.what):
            last = last._replace(end=span.end)
            continue
        if last:
            yield last
        last = span
    if last:
        yield last
