"""The report of one start in a log: its phases, what would have saved each, and the unexplained time."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sgl_tune.errors import UsageError
from sgl_tune.server_log.log import log_of
from sgl_tune.server_log.reader import read_starts
from sgl_tune.server_log.start import Start
from sgl_tune.server_log.verdict import Outcome, outcome_of
from sgl_tune.start_report.compilers import Turn, Written
from sgl_tune.start_report.tactics import Tactics, tactics_of
from sgl_tune.start_report.timeline import PHASES, UNEXPLAINED, Span, timeline
from sgl_tune.stores.rows import BY_ID
from sgl_tune.units import count, human_age

_COMMAND = "THE SERVER'S COMMAND"
_BUILT_ANEW = ("FlashInfer JIT", "FlashInfer cubins", "SGLang JIT", "Triton")
_DEEP_GEMM_CACHED_SECONDS = 1.0  # SGLang logs "typically 1 sec" per cached shape


@dataclass(frozen=True, slots=True)
class Watched:
    """A start of ours. `exit_code`: of a command that ended before it was ready, as a shell shows it."""

    command: str = ""
    exit_code: int | None = None
    turns: tuple[Turn, ...] = ()
    written: tuple[Written, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """A phase in the report. `hit`: its store held what it needed; None if it has no store or that is
    unknown."""

    name: str
    begins: float
    seconds: float
    store: str | None = None
    hit: bool | None = None
    cause: str = ""
    remedy: str | None = None
    saves_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LastWord:
    """A rank's last line. `at`: seconds since the start began."""

    rank: str
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class StartReport:
    """The report of one start. `number`: which of the log's `starts` it is."""

    start: Start
    outcome: Outcome
    phases: tuple[PhaseReport, ...]
    spans: tuple[Span, ...]
    stands_in: str
    tactics: Tactics | None
    watched: Watched | None = None
    number: int = 1
    starts: int = 1

    @property
    def ready(self) -> bool:
        return self.start.ready is not None

    @property
    def wall_seconds(self) -> float:
        return self.start.end - self.start.began

    @property
    def unexplained_seconds(self) -> float:
        return sum(span.seconds for span in self.spans if span.phase == UNEXPLAINED)

    @property
    def saves_seconds(self) -> float:
        return sum(phase.saves_seconds or 0.0 for phase in self.phases)

    @property
    def ranks(self) -> int:
        return len(self.start.speakers) or 1

    @property
    def exit_code(self) -> int | None:
        return self.watched.exit_code if self.watched and not self.ready else None

    @property
    def written(self) -> tuple[Written, ...]:
        return self.watched.written if self.watched else ()

    @property
    def compiled(self) -> tuple[str, ...]:
        """Return the modules that were built."""
        built = (event for event in self.start.events if event.phase in PHASES and PHASES[event.phase].store)
        said = (event.said.get("module", "") for event in built)
        turns = self.watched.turns if self.watched else ()
        return tuple(dict.fromkeys(filter(None, [*said, *(turn.what for turn in turns)])))

    @property
    def failure(self) -> LastWord | None:
        death = self.outcome.log.death
        if death is None or self.ready:
            return None
        return LastWord(f"{death.source} {death.rank}".strip(), death.text, death.at - self.start.began)

    @property
    def last_words(self) -> tuple[LastWord, ...]:
        """Return the ranks' last lines, beginning with the rank that fell silent first, to look at first."""
        words = () if self.ready else sorted((w.at, who, w.text) for who, w in self.start.last_words.items())
        return tuple(LastWord(who.name, text, at - self.start.began) for at, who, text in words)

    def to_json(self) -> dict[str, Any]:
        start, failure = self.start, self.failure
        wall, unexplained = self.wall_seconds, self.unexplained_seconds
        return {
            "wall_seconds": round(wall, 3),
            "attributed_seconds": round(wall - unexplained, 3),
            "unexplained_seconds": round(unexplained, 3),
            "saves_seconds": round(self.saves_seconds, 3),
            "ready": self.ready,
            "ready_by": start.ready.text if start.ready else None,
            "exit_code": self.exit_code,
            "stands_in": None if self.ready else self.stands_in,
            "failure": rounded(asdict(failure)) if failure else None,
            "verdict": self.outcome.headline if self.outcome.log.death else None,
            "ranks": self.ranks,
            "start": self.number,
            "starts": self.starts,
            "phases": [rounded(asdict(phase)) for phase in self.phases],
            "compiled": list(self.compiled),
            "profiled": start.bars.profiled,
            "caches": [asdict(file) for file in self.tactics.files] if self.tactics else [],
            "written": [asdict(one) for one in self.written] if self.watched else None,
            "spans": [
                rounded({"phase": span.phase, "what": span.what or None, "begins": span.begin - start.began,
                          "seconds": span.seconds})
                for span in self.spans
            ],
            "last_words": [rounded(asdict(word)) for word in self.last_words],
            "findings": [finding.to_json(times) for finding, times in start.findings.items()],
            "notes": list(start.notes),
        }  # fmt: skip


def report_of(start: Start, number: int = 1, starts: int = 1, watched: Watched | None = None) -> StartReport:
    spans, after = timeline(start, watched.turns if watched else ())
    tactics = tactics_of(start)
    command = watched.command if watched else ""
    phases = tuple(_phases(start, spans, tactics, command or _COMMAND))
    outcome = outcome_of(log_of([start]))
    after = outcome.failed_in if outcome.log.death and outcome.failed_in in PHASES else after
    return StartReport(start, outcome, phases, spans, after, tactics, watched, number, starts)


def _phases(
    start: Start, spans: tuple[Span, ...], tactics: Tactics | None, command: str
) -> Iterator[PhaseReport]:
    for name in dict.fromkeys(span.phase for span in spans if span.phase != UNEXPLAINED):
        own = [span for span in spans if span.phase == name]
        begins, took = own[0].begin - start.began, sum(span.seconds for span in own)
        phase = PHASES[name]
        if name == "tactics" and tactics is not None:
            tuned = min(took, start.bars.tuned_seconds or took)  # each rank has its own bars
            saves = None if tactics.hit is None else 0.0 if tactics.hit else tuned
            cause, remedy = tactics.cause, f"sgl-tune warm -- {command}" if tactics.hit is False else None
            if remedy and took - tuned >= 1:
                cause += f"; measuring took {tuned:.1f} s, the rest is compiling or loading at first use"
            yield PhaseReport(name, begins, took, phase.store, tactics.hit, cause, remedy, saves)
        elif phase.store is not None:
            yield _built(start, name, phase.store, own, begins, took)
        else:
            yield PhaseReport(name, begins, took, cause=phase.spent_on)


def _built(start: Start, name: str, store: str, own: list[Span], begins: float, took: float) -> PhaseReport:
    remedy = _keep(store)
    if name == "DeepGEMM":
        shapes = sum(event.phase == name and "shape" in event.said for event in start.events)
        cause = f"{count(shapes, 'shape')} compiled or loaded; a cached one takes about 1 s"
        left = max(0.0, took - shapes * _DEEP_GEMM_CACHED_SECONDS)
        return PhaseReport(name, begins, took, store, None, cause, remedy, left)
    modules: dict[str, float] = {}
    for span in own:
        if span.what:
            modules[span.what] = modules.get(span.what, 0.0) + span.seconds
    said = [f"{module} {seconds:.1f} s" for module, seconds in modules.items()]
    said += [f"{e.said['module']}: its {e.said['why']} changed" for e in start.facts("why")]
    said += [f"{e.said['module']} was there and could not be loaded" for e in start.facts("broken")]
    hit = False if name in _BUILT_ANEW else None
    if hit is None:
        said.append("the log does not show whether its cache held a part")
    return PhaseReport(name, begins, took, store, hit, "; ".join(said), remedy, took)


def _keep(store_id: str) -> str:
    store = BY_ID[store_id]
    folder = store.at_home.format(home="~", user="USER", tmp="/tmp")
    path = "" if store.moves == "as it is" else ", at the same path"
    return f"keep {folder}, or the folder that {store.variable} names, between starts{path}"


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}


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
        seconds = time.time() - path.stat().st_mtime  # the first question about a start that hangs
        age = f"{human_age(seconds)} ago" if seconds >= 60 else "less than a minute ago"
        start.notes[f"the file itself was last written {age}"] = None
    return report_of(start, number or len(starts), len(starts))


def parse_ready(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise UsageError(f"--ready {text}: no regular expression: {error}") from None
