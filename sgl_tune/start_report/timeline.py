"""The phases of a start as data, and each second of a start given to one phase: the phase of the rank for
which all others wait. A line that all ranks print is a meeting, which ends when the last rank has printed
it. Until then the rank that is behind delays the start, so the seconds count for that rank's phase."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from sgl_tune.server_log.marks import GRAPHS, NOTHING_BUILT, Edge
from sgl_tune.server_log.start import Event, Speaker, Start
from sgl_tune.start_report.compilers import Turn

_MOST_MOMENTS = 5_000
_MOST_TOLD = 2_000
_ALWAYS = 2  # from this depth, a line without a rank counts beside the ranks' lines
_MET = (Edge.opens, Edge.closes, Edge.passes)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a start. `depth`: decides between lines that overlap, because a compilation inside a
    capture is a compilation. `until`: for a phase without own lines: it ends at a line of these phases. If
    a line of another phase comes first, nothing is known."""

    name: str
    spent_on: str
    store: str | None = None
    depth: int = 1
    until: tuple[str, ...] = ()


_WITHIN, _COMPILING = 2, 3
_LOADS = ("communicator", "weights")


def _between(name: str, spent_on: str, *until: str) -> Phase:
    return Phase(name, spent_on, until=until)


PHASES = {
    phase.name: phase
    for phase in (
        _between("imports", "Python and SGLang imported, before the first line", "first line"),
        _between("arguments", "flags resolved, the model's config read", "arguments"),
        _between("setup", "imports, flags and the model's config, of a process that is no server", *_LOADS),
        _between("processes", "schedulers started, each imports SGLang again", *_LOADS),
        Phase("communicator", "torch.distributed, NCCL and the groups"),
        _between("model setup", "between the communicator and the weights", "weights"),
        Phase("weights", "the checkpoint read into the GPU"),
        _between("draft setup", "waiting for the other ranks, the draft's worker set up", *_LOADS),
        Phase("draft weights", "the draft model's checkpoint read into the GPU"),
        _between("kv pool", "sizes profiled, the KV cache allocated", "kv pool"),
        _between("attention backends", "attention backends and first uses before the graphs",
                 "tactics", "scheduler", *GRAPHS),
        Phase("tactics", "FlashInfer's tuner measures tactics", "tactics", _WITHIN),
        Phase("prefill graphs", "CUDA graphs of prefill captured"),
        Phase("decode graphs", "CUDA graphs of decode captured"),
        Phase("draft graphs", "CUDA graphs of the draft captured"),
        Phase("FlashInfer JIT", "nvcc builds FlashInfer's modules", "flashinfer-jit", _COMPILING),
        Phase("FlashInfer cubins", "cubins are downloaded", "flashinfer-cubins", _COMPILING),
        Phase("SGLang JIT", "SGLang's own kernels are built", "tvm-ffi", _COMPILING),
        Phase("Triton", "Triton compiles its kernels", "triton", _COMPILING),
        Phase("compilers", "compilers ran in a folder that names no store", None, _COMPILING),
        Phase("DeepGEMM", "DeepGEMM compiles its kernels for every M", "deep-gemm", _COMPILING),
        Phase("Inductor", "torch.compile compiles graphs", "inductor", _COMPILING),
        Phase("TileLang", "TileLang and Triton kernels of DeepSeek-V4 are built", "tilelang", _COMPILING),
        _between("scheduler", "the scheduler's own set-up",
                 "scheduler", "tactics", "kv pool", "http server", *GRAPHS),
        _between("http server", "the HTTP server starts", "http server", "ready"),
        _between("warm-up request", "the server asks itself for a first answer", "ready", "warm-up request"),
    )
}  # fmt: skip
UNEXPLAINED, SHOWN = "unexplained", {"tactics": "autotune"}  # as a prediction of memory names it, for people


class Span(NamedTuple):
    phase: str
    begin: float
    end: float
    what: str = ""
    is_sure: bool = True  # False: the line of its phase's end is missing

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass
class _Track:
    """What one process did. `spans`: one after the other. `told`: spans above them whose length a later
    line gives."""

    spans: list[Span] = field(default_factory=list)
    told: list[Span] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    done: float | None = None

    def at(self, moment: float) -> Span | None:
        number = bisect_right(self.spans, moment, key=lambda span: span.begin) - 1
        found = [span for span in self.told if span.begin <= moment < span.end]
        if number >= 0 and moment < self.spans[number].end:
            found.append(self.spans[number])
        return max(found, key=_weight, default=None)


def timeline(start: Start, turns: Iterable[Turn] = ()) -> tuple[tuple[Span, ...], str]:
    """Return spans from the start's first line to its last, and the phase at its end. `turns`: compilers that
    were seen running."""
    events: dict[Speaker, dict[int, Event]] = {}
    for number, event in enumerate(start.events):
        events.setdefault(event.speaker, {})[number] = event
        events.setdefault(Speaker(event.speaker.source, ""), {})
    for speaker in events:
        if not speaker.rank:
            events[speaker] = dict(sorted((events[speaker] | _heard_of_ranks(start, speaker)).items()))
    tracks = {speaker: _track(start, speaker, own) for speaker, own in events.items()}
    others = [track for speaker, track in tracks.items() if not speaker.rank]
    others.append(_Track(told=[Span(turn.phase, turn.begin, turn.end, turn.what) for turn in turns]))
    held = _Held([track for speaker, track in tracks.items() if speaker.rank])
    spans: list[Span] = []
    for begin, end in pairwise(_moments([*tracks.values(), others[-1]], start.began, start.end)):
        phase, what = _chosen(held, others, begin)
        if spans and (spans[-1].phase, spans[-1].what) == (phase, what):
            spans[-1] = spans[-1]._replace(end=end)
        else:
            spans.append(Span(phase, begin, end, what))
    return tuple(spans), _chosen(held, others, start.end)[0]


def _moments(tracks: Iterable[_Track], began: float, end: float) -> list[float]:
    """Return the times at which anything changes; with 1,000 ranks, at a limited resolution."""
    edges = {edge for t in tracks for span in (*t.spans, *t.told) for edge in (span.begin, span.end)}
    moments = sorted({began, end, *(edge for edge in edges if began <= edge <= end)})
    if len(moments) <= _MOST_MOMENTS:
        return moments
    step = (end - began) / _MOST_MOMENTS
    return sorted({began, end, *(began + step * int((moment - began) / step) for moment in moments)})


def _chosen(held: "_Held", others: Sequence[_Track], moment: float) -> tuple[str, str]:
    behind = held.back(moment)
    heard = [span for track in others if (span := track.at(moment))]
    if behind and all(track.marks and track.marks[0][0] <= moment for track in behind):
        heard = [span for span in heard if span.phase and PHASES[span.phase].depth >= _ALWAYS]
    heard += [span for track in behind if (span := track.at(moment))]
    chosen = max(heard, key=_weight, default=None)
    return (chosen.phase or UNEXPLAINED, chosen.what) if chosen else (UNEXPLAINED, "")


class _Held:
    """Finds the ranks that are behind, by the lines that all ranks have printed."""

    def __init__(self, ranks: Sequence[_Track]) -> None:
        self._ranks = ranks
        common = Counter(name for _, name in ranks[0].marks) if ranks else Counter[str]()
        for track in ranks[1:]:
            common &= Counter(name for _, name in track.marks)
        self._passed = [_times(track.marks, common) for track in ranks]
        self._first = min((track.marks[0][0] for track in ranks if track.marks), default=None)
        self._last = max((track.done for track in ranks if track.done is not None), default=None)

    def back(self, moment: float) -> list[_Track]:
        """Return the ranks that are behind; none before the first line of a rank and after the last is
        ready."""
        if self._first is None or moment < self._first or (self._last is not None and moment >= self._last):
            return []
        reached = [bisect_right(passed, moment) for passed in self._passed]
        least = min(reached)
        return [track for track, count in zip(self._ranks, reached, strict=True) if count == least]


def _times(marks: Sequence[tuple[float, str]], common: Counter[str]) -> list[float]:
    left, times = Counter(common), []
    for at, name in marks:
        if left[name] > 0:
            left[name] -= 1
            times.append(at)
    return times


def _track(start: Start, speaker: Speaker, events: Mapping[int, Event]) -> _Track:
    track, walk = _Track(), _Walk(start, speaker)
    for number, event in events.items():
        if speaker.rank and event.mark.edge in _MET:
            track.marks.append((event.at, event.mark.says + event.phase))
            if event.mark.fact == "scheduler":
                track.done = event.at
        walk.step(event, start.bars.limits.get(number), start.bars.tuned_after.get(number, 0.0))
    walk.finish(start.end + 1)
    track.spans, track.told = walk.spans, walk.told
    return track


def _heard_of_ranks(start: Start, speaker: Speaker) -> dict[int, Event]:
    """Return the ranks' events for a pod's own process, which waits from its last rank's first line until
    the ranks are ready."""
    first: dict[Speaker, int] = {}
    ready = []
    for number, event in enumerate(start.events):
        if event.speaker.rank and event.speaker.source == speaker.source:
            first.setdefault(event.speaker, number)
            if event.mark.fact == "scheduler":
                ready.append(number)
    return {number: start.events[number] for number in [*ready, *([max(first.values())] if first else [])]}


class _Walk:
    """Walks through one process's events, with the phases that are open, and fills the time between."""

    def __init__(self, start: Start, speaker: Speaker) -> None:
        self.spans: list[Span] = []
        self.told: list[Span] = []
        self._open: list[str] = []
        # Without a server, a model prints no server_args and has no other processes.
        is_server = bool(start.server_args or start.speakers)
        begins = (*(["imports"] if start.is_launched else []), "arguments", *([] if is_server else ["setup"]))
        self._then: tuple[str, ...] = () if speaker.rank else begins
        self._is_told = start.is_launched
        self._building: Span | None = None  # its end is not known yet
        self._limit: float | None = None
        self._tuned = 0.0  # seconds of tuning since the build began
        self._at = None if speaker.rank else start.began

    def step(self, event: Event, limit: float | None, tuned: float) -> None:
        mark, phase = event.mark, event.phase
        is_met = mark.edge in _MET
        self._pass(event.at, mark.phase if mark.phase != "graphs" else phase, is_met)
        if is_met:
            self._then, self._is_told = (), True
        if mark.edge is Edge.opens:
            if PHASES[phase].depth == 1:
                self._doubt()
            self._open.append(phase)
        elif mark.edge is Edge.closes and phase in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(phase) :]
        elif mark.edge is Edge.closes and "elapsed" in event.said:
            self._tell(phase, event.at, event.said["elapsed"])
        elif mark.edge is Edge.passes:
            self._open.clear()
        elif mark.edge is Edge.took:
            self._tell(phase, event.at, event.said["seconds"])
        elif mark.edge is Edge.builds:
            what = event.said.get("module") or (self._building.what if self._building else "")
            self._building, self._limit, self._tuned = Span(phase, event.at, event.at, what), limit, tuned
        if is_met and not self._open:
            self._then = mark.then
        if mark is NOTHING_BUILT:
            self._building = None

    def finish(self, end: float) -> None:
        """End the walk: the process goes on as it was."""
        self._pass(end, "", False)

    def _doubt(self) -> None:
        """Mark open phases as doubtful: a new phase begins, and the line of their end is missing."""
        while self._open:
            name, number = self._open.pop(), len(self.spans) - 1
            while number >= 0 and self.spans[number].phase == name:
                self.spans[number] = self.spans[number]._replace(is_sure=False)
                number -= 1

    def _tell(self, phase: str, at: float, seconds: str) -> None:
        if len(self.told) < _MOST_TOLD:
            self.told.append(Span(phase, at - float(seconds), at))

    def _pass(self, at: float, phase: str, is_met: bool) -> None:
        """Fill the time since the last event. `is_met`: a line of `phase` ends it."""
        begin, self._at = self._at, at
        if begin is None or at <= begin:
            return
        if self._building is not None:
            stop = min(at, begin + self._limit) if self._limit is not None else at
            stop = max(begin, min(stop, at - self._tuned))
            self.spans.append(self._building._replace(begin=begin, end=stop))
            begin, self._limit, self._tuned = stop, None, 0.0
        if at > begin:
            if self._open:
                name = self._open[-1]
            elif is_met:
                name = next((name for name in self._then if phase in PHASES[name].until), "")
            else:
                name = self._then[0] if self._then and self._is_told else ""
            self.spans.append(Span(name, begin, at))


def _weight(span: Span) -> tuple[int, bool]:
    """Return the sort key of a span: at any moment the deepest counts, then one with lines of its own."""
    phase = PHASES.get(span.phase)
    return (phase.depth, not phase.until) if phase and span.is_sure else (0, bool(phase))
