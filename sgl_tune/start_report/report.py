"""The report of a start: its phases, what each would have been spared by, and what nothing explains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runtime.server.stores import BY_ID
from sgl_tune.start_report.caches import CacheFile, Tactics, tactics_of
from sgl_tune.start_report.phases import PHASES, UNEXPLAINED, Phase
from sgl_tune.start_report.timeline import Span, timeline
from sgl_tune.start_report.told import Told, facts
from sgl_tune.start_report.written import Written
from sgl_tune.units import count

_COMMAND = "THE SERVER'S COMMAND"
_BUILT_ANEW = ("FlashInfer JIT", "FlashInfer cubins", "SGLang JIT", "Triton")
_DEEP_GEMM_CACHED_SECONDS = 1.0  # "typically 1 sec", says SGLang of each shape that its cache holds


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """`hit` is whether its store held what it needed; None where it has none or the log does not tell."""

    name: str
    begins: float
    seconds: float
    store: str | None
    hit: bool | None
    cause: str
    remedy: str | None
    saves_seconds: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "begins": round(self.begins, 3),
            "seconds": round(self.seconds, 3),
            "store": self.store,
            "hit": self.hit,
            "cause": self.cause,
            "remedy": self.remedy,
            "saves_seconds": None if self.saves_seconds is None else round(self.saves_seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class LastWord:
    rank: str
    text: str
    at: float  # since the start began

    def to_json(self) -> dict[str, Any]:
        return {"rank": self.rank, "text": self.text, "at": round(self.at, 3)}


@dataclass(frozen=True, slots=True)
class StartReport:
    wall_seconds: float
    ready: bool
    ready_by: str
    stands_in: str
    failure: LastWord | None
    ranks: int
    phases: tuple[PhaseReport, ...]
    spans: tuple[Span, ...]
    compiled: tuple[str, ...]
    profiled: dict[str, int]
    measured: int | None
    caches: tuple[CacheFile, ...]
    unexplained_seconds: float
    last_words: tuple[LastWord, ...]
    notes: tuple[str, ...]
    written: tuple[Written, ...] | None = None
    starts: int = 1
    number: int = 1
    exit_code: int | None = None  # of a command of ours that ended before it was ready, as a shell tells it
    began: float = field(default=0.0, compare=False)

    @property
    def attributed_seconds(self) -> float:
        return self.wall_seconds - self.unexplained_seconds

    @property
    def saves_seconds(self) -> float:
        return sum(phase.saves_seconds or 0.0 for phase in self.phases)

    def to_json(self) -> dict[str, Any]:
        return {
            "wall_seconds": round(self.wall_seconds, 3),
            "attributed_seconds": round(self.attributed_seconds, 3),
            "unexplained_seconds": round(self.unexplained_seconds, 3),
            "saves_seconds": round(self.saves_seconds, 3),
            "ready": self.ready,
            "ready_by": self.ready_by or None,
            "exit_code": self.exit_code,
            "stands_in": None if self.ready else self.stands_in,
            "failure": self.failure.to_json() if self.failure else None,
            "ranks": self.ranks,
            "start": self.number,
            "starts": self.starts,
            "phases": [phase.to_json() for phase in self.phases],
            "compiled": list(self.compiled),
            "profiled": self.profiled,
            "measurements": self.measured,
            "caches": [file.to_json() for file in self.caches],
            "written": None if self.written is None else [one.to_json() for one in self.written],
            "spans": [
                {
                    "phase": span.phase,
                    "what": span.what or None,
                    "begins": round(span.begin - self.began, 3),
                    "seconds": round(span.seconds, 3),
                }
                for span in self.spans
            ],
            "last_words": [word.to_json() for word in self.last_words],
            "notes": list(self.notes),
        }


def report_of(told: Told, number: int = 1, starts: int = 1) -> StartReport:
    spans, after = timeline(told)
    tactics = tactics_of(told)
    end = told.ended if told.ready is None else told.ready
    phases = tuple(_phases(told, spans, tactics))
    return StartReport(
        wall_seconds=end - told.began,
        ready=told.ready is not None,
        ready_by=told.ready_by,
        stands_in=after,
        failure=_failure(told),
        ranks=len(told.ranks) or 1,
        phases=phases,
        spans=spans,
        compiled=tuple(_compiled(told)),
        profiled=dict(told.bars.profiled),
        measured=told.measured,
        caches=tactics.files if tactics else (),
        unexplained_seconds=sum(span.seconds for span in spans if span.phase == UNEXPLAINED),
        last_words=() if told.ready is not None else tuple(_last_words(told)),
        notes=tuple(told.notes),
        written=told.written if told.is_launched else None,
        starts=starts,
        number=number,
        exit_code=None if told.ready is not None else told.exit_code,
        began=told.began,
    )


def _phases(told: Told, spans: Iterable[Span], tactics: Tactics | None) -> Iterable[PhaseReport]:
    seconds: dict[str, float] = {}
    begins: dict[str, float] = {}
    for span in spans:
        if span.phase != UNEXPLAINED:
            seconds[span.phase] = seconds.get(span.phase, 0.0) + span.seconds
            begins.setdefault(span.phase, span.begin - told.began)
    for name, took in seconds.items():
        phase = PHASES[name]
        if name == "tactics" and tactics is not None:
            tuned = _tuned(told, took)
            yield PhaseReport(
                name, begins[name], took, phase.store, tactics.hit, _tuning(tactics, took, tuned),
                f"sgl-tune warm -- {told.command or _COMMAND}" if tactics.hit is False else None,
                None if tactics.hit is None else 0.0 if tactics.hit else tuned,
            )  # fmt: skip
        elif phase.store is not None:
            yield _built(told, spans, name, begins[name], took)
        else:
            yield PhaseReport(name, begins[name], took, None, None, _spent(told, phase), None, None)


def _tuned(told: Told, took: float) -> float:
    """By the bars' own clocks. Each of many ranks has its bars, and the phase is no shorter for that."""
    return min(took, told.bars.tuned_seconds or took)


def _tuning(tactics: Tactics, took: float, tuned: float) -> str:
    if tactics.hit is not False or took - tuned < 1:
        return tactics.cause
    rest = "what else is compiled or loaded at first use is in the rest"
    return f"{tactics.cause}; measuring took {tuned:.1f} s: {rest}"


def _keep(store_id: str) -> str:
    store = BY_ID[store_id]
    folder = store.at_home.format(home="~", user="USER", tmp="/tmp")
    path = "" if store.moves == "as it is" else ", at the same path"
    return f"keep {folder}, or where {store.variable} points, between starts{path}"


def _spent(told: Told, phase: Phase) -> str:
    first = told.bars.first_graphs.get(phase.name)
    if first is None or first.seconds < max(1.0, 3 * first.others_seconds):
        return phase.spent_on
    times = (
        f"the first of {first.graphs} took {first.seconds:.1f} s, others {first.others_seconds:.1f} s each"
    )
    return f"{phase.spent_on}; {times}: what is compiled or loaded at first use is in it"


def _built(told: Told, spans: Iterable[Span], name: str, begins: float, took: float) -> PhaseReport:
    store = PHASES[name].store
    assert store is not None
    remedy = _keep(store)
    if name == "DeepGEMM":
        shapes = sum(event.mark.phase == name and "shape" in event.said for event in told.events)
        left = max(0.0, took - shapes * _DEEP_GEMM_CACHED_SECONDS)
        cause = f"{count(shapes, 'shape')} tried; SGLang says 1 s each where its cache holds them"
        return PhaseReport(name, begins, took, store, None, cause, remedy, left)
    modules = {span.what: 0.0 for span in spans if span.phase == name and span.what}
    for span in spans:
        if span.phase == name and span.what:
            modules[span.what] += span.seconds
    said = [f"{module} {seconds:.1f} s" for module, seconds in modules.items()]
    said += [f"{e.said['module']}: its {e.said['why']} changed" for e in facts(told, "why")]
    said += [f"{e.said['module']} was there and could not be loaded" for e in facts(told, "broken")]
    hit = False if name in _BUILT_ANEW else None
    if hit is None:
        said.append("whether its cache held a part is not told")
    return PhaseReport(name, begins, took, store, hit, "; ".join(said), remedy, took)


def _compiled(told: Told) -> Iterable[str]:
    building = (e for e in told.events if e.mark.phase in PHASES and PHASES[e.mark.phase].builds)
    said = (event.said.get("module", "") for event in building)
    return dict.fromkeys(filter(None, [*said, *(turn.what for turn in told.watched)]))


def _failure(told: Told) -> LastWord | None:
    """The first to fail is the cause, those after it follow from it."""
    failed = next(facts(told, "failure"), None)
    if failed is None or told.ready is not None:
        return None
    text = told.errors.get(failed.speaker) or "an exception"
    return LastWord(f"{failed.speaker.source} {failed.speaker.rank}".strip(), text, failed.at - told.began)


def _last_words(told: Told) -> Iterable[LastWord]:
    """Who fell silent first comes first: that is the rank to look at."""
    words = sorted((word.at, who, word.text) for who, word in told.last_words.items())
    for at, who, text in words:
        name = f"{who.source} {who.rank}".strip()
        yield LastWord(name, text, at - told.began)
