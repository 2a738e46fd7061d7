"""One op in all of its buckets: pilots are shared by the workers, the other buckets dealt out among them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf

from flashinfer.autotuner import OptimizationProfile

from runtime.autotune.agreement import BucketReport, merge_reports
from runtime.autotune.bench import Bench
from runtime.autotune.candidate import DEFAULT, Ask, Candidate
from runtime.autotune.installed import numbers_anew
from runtime.autotune.play_off import Settled, settle
from runtime.autotune.progress import Progress
from runtime.autotune.search import (
    WHOLE_TURN,
    Screened,
    best_time,
    dealt,
    finalists,
    fitting,
    pilots,
    screen,
    shortlist,
    worth_sweeping,
)
from runtime.autotune.timed_tuner import TimedTuner

_CLOCK_WARM_UP_SECONDS = 0.05
# Longer kernels have so many rows that their routings do not differ.
_TURNS_BELOW_MS = 0.25


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket as all workers know it after screening."""

    profile: OptimizationProfile
    rows: int
    report: BucketReport
    finalists: list[Candidate]

    @property
    def best_ms(self) -> float:
        return self.time(self.finalists[0]) if self.finalists else inf

    def time(self, candidate: Candidate) -> float:
        seen = self.report.screened.get(candidate)
        return seen.time if seen else inf


class OpSearch:
    def __init__(self, tuner: TimedTuner, ask: Ask, profiles: Sequence[OptimizationProfile]) -> None:
        self.tuner, self.ask, self.profiles = tuner, ask, profiles
        self._team, self._policy = tuner.team, tuner.policy
        self._rows = [ask.bucket(profile) for profile in profiles]
        self._ascending = all(one < other for one, other in pairwise(self._rows))
        self._transfers = self._ascending and not any(map(numbers_anew, ask.runners))

    def screened(self) -> list[Bucket]:
        places = range(len(self.profiles))
        step, chosen, shared = f"screening {self.ask.op}", self._pilots, self._shared_pilots()
        alone = [place for place in chosen if place not in shared]
        swept = self._dealt(step, lambda: self._sweep_share(alone))
        for place in shared:
            told = self._team.together(step, lambda: self._sweep(place, swept, self._team.rank))  # noqa: B023
            swept[place] = merge_reports(self.ask.where(self.profiles[place]), told)
        others = [place for place in places if place not in swept]
        raced = self._dealt(step, lambda: self._race_share(others, swept))
        reports = {**swept, **raced}
        return [self._bucket(place, reports[place], place in shared) for place in places]

    def _dealt(self, step: str, work: Callable[[], dict[int, BucketReport]]) -> dict[int, BucketReport]:
        """Each worker's reports of its own buckets, together."""
        told = self._team.together(step, work)
        return {place: report for own in told for place, report in own.items()}

    @cached_property
    def _pilots(self) -> list[int]:
        """All of them, where no bucket tells anything of its neighbours' tactics."""
        return pilots(self._rows, self._policy) if self._transfers else list(range(len(self._rows)))

    def _shared_pilots(self) -> list[int]:
        """Of the longest launches each worker has a part; what is shorter than their waits is dealt out."""
        if self._team.size == 1 or not self._ascending:
            return []
        least = self._rows[-1] / self._policy.pilot_every
        return [place for place in self._pilots if self._rows[place] >= least]

    def _bucket(self, place: int, report: BucketReport, shared: bool) -> Bucket:
        devices = self._team.size if shared else 1
        chosen = finalists(report.screened, self._policy, devices)
        return Bucket(self.profiles[place], self._rows[place], report, chosen)

    def _sweep_share(self, places: Sequence[int]) -> dict[int, BucketReport]:
        listed = self._tactics_of(places)
        swept: dict[int, BucketReport] = {}
        for place in places[self._team.rank :: self._team.size]:
            swept[place] = self._sweep(place, swept, candidates=listed[place])
        return swept

    def _sweep(
        self,
        place: int,
        swept: Mapping[int, BucketReport],
        part: int | None = None,
        candidates: list[Candidate] | None = None,
    ) -> BucketReport:
        before = swept.get(self._pilot_before(place)) if self._transfers else None
        bench = self._bench(place, before.screened if before else None)
        candidates = bench.candidates() if candidates is None else candidates
        seen = fitting(before.screened, candidates) if before else None
        share = candidates
        if part is not None:
            share = [c for n, c in enumerate(candidates) if (n + place) % self._team.size == part]
        chosen = worth_sweeping(share, seen, self._policy)
        return self._screen(bench, candidates, _with_default(chosen, share), pilot=True)

    def _pilot_before(self, place: int) -> int:
        return max((pilot for pilot in self._pilots if pilot < place), default=-1)

    def _tactics_of(self, places: Sequence[int]) -> dict[int, list[Candidate]]:
        """All workers list the tactics of all: a list may be agreed on by the team (`rank_tactics`)."""
        return {place: self._bench(place, None).candidates() for place in places}

    def _race_share(
        self, places: Sequence[int], swept: Mapping[int, BucketReport]
    ) -> dict[int, BucketReport]:
        listed = self._tactics_of(places)
        who = dealt([self._race_cost(place, swept) for place in places], self._team.size)
        mine = [place for place, worker in zip(places, who, strict=True) if worker == self._team.rank]
        return {place: self._race(place, listed[place], swept) for place in mine}

    def _race_cost(self, place: int, swept: Mapping[int, BucketReport]) -> float:
        """A race launches each tactic about as often as its neighbours' pilots did."""
        near = [swept[pilot] for pilot in self._neighbours(place, swept)]
        return max(
            best_time(report.screened) * report.launches / max(1, len(report.screened)) for report in near
        )

    def _neighbours(self, place: int, swept: Mapping[int, BucketReport]) -> list[int]:
        below = max((pilot for pilot in swept if pilot < place), default=None)
        above = min((pilot for pilot in swept if pilot > place), default=None)
        return [pilot for pilot in (below, above) if pilot is not None]

    def _race(
        self, place: int, candidates: list[Candidate], swept: Mapping[int, BucketReport]
    ) -> BucketReport:
        neighbours = [swept[pilot].screened for pilot in self._neighbours(place, swept)]
        bench = self._bench(place, neighbours[0])
        chosen = shortlist(candidates, neighbours, self._policy)
        return self._screen(bench, candidates, _with_default(chosen, candidates), pilot=False)

    def _bench(self, place: int, near: Mapping[Candidate, Screened] | None) -> Bench:
        expected = min((seen.time for seen in (near or {}).values()), default=0.0)
        return Bench(self.tuner, self.ask, self.profiles[place], expected)

    def _screen(
        self, bench: Bench, candidates: list[Candidate], chosen: list[Candidate], pilot: bool
    ) -> BucketReport:
        policy = self._policy
        bench.prepare(chosen)
        if chosen and not self.tuner.is_warm:
            self._warm_clock(bench, chosen[0])
        screened = screen(chosen, bench.clock, policy, policy.sweep if pilot else policy.stages)
        standing = finalists(screened, policy)
        best = screened[standing[0]].time if standing else inf
        default = screened[DEFAULT].time if DEFAULT in screened else inf
        bucket = self.ask.bucket(bench.profile)
        self.tuner.watch(
            Progress(self.ask.op, bucket, "screen", len(candidates), len(standing), best, default)
        )
        return BucketReport(tuple(candidates), screened, dict(bench.failures), bench.launches)

    def _warm_clock(self, bench: Bench, candidate: Candidate) -> None:
        self.tuner.is_warm = True
        end = time.perf_counter() + _CLOCK_WARM_UP_SECONDS
        while time.perf_counter() < end:
            bench.clock([candidate], WHOLE_TURN)

    def settle(self, bucket: Bucket) -> tuple[Settled[Candidate], dict[Candidate, str]]:
        """Where no layer is known: the finalists alone, in turns on one device."""
        bench = Bench(self.tuner, self.ask, bucket.profile, bucket.best_ms if bucket.finalists else 0.0)
        bench.prepare(bucket.finalists)
        turn = WHOLE_TURN if self.tuner.queues and bucket.best_ms < _TURNS_BELOW_MS else 1

        def clock(alone: Sequence[tuple[Candidate, ...]], launches: int) -> list[float]:
            return bench.clock([candidate for (candidate,) in alone], launches)

        settled = settle([bucket.finalists], clock, self._policy, bench.expected_ms, turn)
        return settled, bench.failures


def _with_default(chosen: list[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Hopeless or not: so that what tuning gains is measured."""
    missing = DEFAULT in candidates and DEFAULT not in chosen
    return [*chosen, DEFAULT] if missing else chosen
