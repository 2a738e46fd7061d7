"""Find the largest start that fits, with few starts, each of them complete. The memory of the phases
beside the KV pool hardly depends on the pool. So one start shows which memory fraction leaves the wanted
bytes. That fraction is started, and so is the fraction one step higher, up to the phase that decides. If
no fraction fits, the size that the tightest phase depends on is halved."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.errors import CheckFailed
from sgl_tune.memory.options import Goals
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.starting import AS_IS, Change, Start, Started, change_of
from sgl_tune.units import memory_bytes

_HIGHEST, _SOME_POOL = 999, 20
_STEPS, _MOST_STARTS = 6, 14
_FEWEST_REQUESTS, _SHORTEST_CHUNK, _FEWEST_GRAPHS = 16, 256, 8
MOST_SECONDS = 90.0  # CPU seconds, after which the best start so far is the answer
_GRAPHS = ("decode graphs", "graphs", "draft decode graphs", "draft graphs")


@dataclass(frozen=True, slots=True)
class _Blocked:
    """No fraction fits. `why`: the end of a sentence. `phase`: the tightest phase."""

    why: str
    phase: str


class Search:
    def __init__(self, start: Start, release: Release, goals: Goals) -> None:
        self._start, self._release, self._goals = start, release, goals
        self._spent, self._starts, self._ranks = 0.0, 0, 1

    def fit(self) -> Fit:
        first = self._counted(self._start(AS_IS, None))
        asked, self._ranks = first.report, first.layout.dp
        if asked.verdict == "refused":
            raise CheckFailed(f"SGLang refuses this server: {asked.refused}")
        notch = round((asked.sizes.mem_fraction_static or 0.85) * NOTCHES)
        knobs = Knobs() if self._goals.requests is None else Knobs(requests=self._requests())
        known = Trial(knobs, notch, asked) if knobs == Knobs() else None
        given_up: list[str] = []
        found = self._highest(knobs, notch, known)
        while isinstance(found, _Blocked):
            least = self._relieved(knobs, found.phase, first)
            if least is None or self._is_spent:
                tried = f", even with {'; '.join(given_up[-2:])}" if given_up else ""
                raise CheckFailed(f"nothing fits{tried}: {found.why}", self._goals.way_out)
            what, knobs = least
            given_up.append(what)
            found = self._highest(knobs, notch)
        return Fit(self._goals, asked, found, self._beyond(found), tuple(given_up))

    @property
    def _is_spent(self) -> bool:
        return self._spent > MOST_SECONDS or self._starts >= _MOST_STARTS

    def _counted(self, started: Started) -> Started:
        self._spent += started.seconds
        self._starts += 1
        return started

    def _trial(self, knobs: Knobs, notch: int, least: int | None = None) -> Trial:
        change = change_of({"mem_fraction_static": notch / NOTCHES, **knobs.flags()}, self._release)
        return Trial(knobs, notch, self._counted(self._start(change, least)).report)

    def _requests(self) -> int:
        return -(-(self._goals.requests or 1) // self._ranks) * self._ranks

    def _wanted(self, trial: Trial) -> int:
        return self._goals.free_bytes + trial.report.margin_bytes

    def _highest(self, knobs: Knobs, notch: int, known: Trial | None = None) -> Trial | _Blocked:
        """Return the highest fraction that leaves the wanted bytes. The search begins at `notch`; `known`
        is its trial, if already made."""
        fitting: Trial | None = None
        lowest_bad = _HIGHEST + 1
        blocked = _Blocked("no fraction leaves the wanted memory free", "")
        for _ in range(_STEPS):
            trial, known = known or self._trial(knobs, notch), None
            report = trial.report
            if report.verdict in ("failed", "refused"):
                failed_in = report.run.failed_in or ""
                if failed_in not in ("kv pool", "draft kv pool") or trial.notch >= trial.least_notch:
                    words = report.refused or (report.failure.error if report.failure else "")
                    return _Blocked(words, failed_in)
                notch = min(_HIGHEST, trial.least_notch + _SOME_POOL)
                continue
            spare = trial.slack - self._wanted(trial)
            if spare >= 0:
                fitting = trial
            else:
                lowest_bad = min(lowest_bad, trial.notch)
                short, fraction = memory_bytes(-spare), trial.notch / NOTCHES
                why = f"{short} are missing in {trial.tightest} with a fraction of {fraction:g}"
                blocked = _Blocked(why, trial.tightest)
            step = math.floor(spare / trial.notch_bytes) if trial.notch_bytes else 0
            least = fitting.notch if fitting else trial.least_notch
            following = min(lowest_bad - 1, max(trial.notch + step, least))
            if following < least or following in (trial.notch, least) or (fitting and self._is_spent):
                break
            notch = following
        return self._checked(fitting) if fitting is not None else blocked

    def _checked(self, trial: Trial) -> Trial | _Blocked:
        wanted = self._goals.tokens(self._ranks)
        if self._goals.context_length is not None and trial.tokens < wanted:
            why = f"{trial.tokens:,} KV tokens per rank, and {self._goals} need {wanted:,}"
            return _Blocked(why, trial.tightest)
        return trial

    def _beyond(self, best: Trial) -> Trial | None:
        if best.notch >= _HIGHEST:
            return None
        return self._trial(best.knobs, best.notch + 1, self._wanted(best))

    def _relieved(self, knobs: Knobs, phase: str, first: Started) -> tuple[str, Knobs] | None:
        """Return what was halved, in words, and the new flags: the size that the phase depends on, or
        another."""
        sizes = first.report.sizes
        now = Knobs(
            knobs.chunk or (sizes.chunked_prefill_size or 0) * self._ranks or None,
            first.graphs if knobs.graphs is None else knobs.graphs,
            knobs.requests or (sizes.max_running_requests or 0) * self._ranks or None,
        )
        order = ("graphs", "chunk", "requests") if phase in _GRAPHS else ("chunk", "requests", "graphs")
        for name in order:
            half = _half(now, name, self._ranks, self._goals)
            if half is not None:
                return difference(now, replace(now, **{name: half})), replace(knobs, **{name: half})
        return None


def _half(knobs: Knobs, name: str, ranks: int, goals: Goals) -> int | None:
    value = getattr(knobs, name)
    if not value or (name == "requests" and goals.requests):
        return None
    least = {
        "graphs": _FEWEST_GRAPHS,
        "chunk": _SHORTEST_CHUNK * ranks,
        "requests": _FEWEST_REQUESTS * ranks,
    }[name]
    if value // 2 >= least:
        return int(value // 2)
    return NO_GRAPHS if name == "graphs" else None


NO_GRAPHS = 0
NOTCHES = 1000  # SGLang rounds its fraction to thousandths


@dataclass(frozen=True, slots=True)
class Knobs:
    """Flags that a fit may change; None: as the user asked. `graphs`: the largest batch."""

    chunk: int | None = None
    graphs: int | None = None
    requests: int | None = None

    def flags(self) -> dict[str, Any]:
        graphs = (
            {"disable_cuda_graph": True} if self.graphs == NO_GRAPHS else {"cuda_graph_max_bs": self.graphs}
        )
        flags = {"chunked_prefill_size": self.chunk, "max_running_requests": self.requests, **graphs}
        return {name: value for name, value in flags.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Trial:
    """A start with certain flags. `report`: the rank with the least free memory. `notch`: the memory
    fraction in thousandths."""

    knobs: Knobs
    notch: int
    report: MemoryReport

    @property
    def flags(self) -> dict[str, Any]:
        return {"mem_fraction_static": self.notch / NOTCHES, **self.knobs.flags()}

    @property
    def slack(self) -> int:
        """Return the free bytes at the tightest moment; negative if the start ran out of memory."""
        if self.report.oom is not None:
            return min(-1, self.report.oom.free_bytes - self.report.oom.tried_bytes)
        return self.report.free_at_peak_bytes

    @property
    def notch_bytes(self) -> int:
        """Return the bytes of one thousandth of the memory fraction."""
        first = self.report.phase("communicator")
        return 0 if first is None else self.report.free_after(first) // NOTCHES

    @property
    def least_notch(self) -> int:
        """Return the least `notch` whose memory fraction has room for the weights."""
        weights = [of for of in self.report.phases if of.name in ("weights", "draft weights")]
        if not weights or not self.notch_bytes:
            return 1
        taken = NOTCHES - self.report.free_after(weights[-1]) / self.notch_bytes
        return max(1, int(taken) + 1)

    @property
    def tokens(self) -> int:
        return self.report.sizes.kv_tokens or 0

    @property
    def tightest(self) -> str:
        return self.report.tightest.name if self.report.tightest else ""

    def change(self, release: Release) -> Change:
        return change_of(self.flags, release)


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit. `beyond`: the best start with the next higher fraction, which runs out of
    memory or leaves too little; None if there is no higher fraction."""

    goals: Goals
    asked: MemoryReport
    best: Trial
    beyond: Trial | None
    given_up: tuple[str, ...]


def difference(before: Knobs, after: Knobs) -> str:
    if before.graphs != after.graphs:
        return f"graphs to {after.graphs:,}, not {before.graphs:,}" if after.graphs else "no graphs"
    if before.chunk != after.chunk:
        return f"chunks of {after.chunk:,}, not {before.chunk:,}"
    return f"{after.requests:,} requests at once, not {before.requests:,}"
