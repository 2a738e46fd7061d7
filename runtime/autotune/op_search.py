"""Searches one op in all buckets: the workers share the pilots, and divide the other buckets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import fmean

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
    part,
    pilots,
    runs,
    screen,
    shortlist,
    worth_sweeping,
)
from runtime.autotune.timed_tuner import TimedTuner

_CLOCK_WARM_UP_SECONDS = 0.025
# Longer kernels have so many rows that routings do not change their time.
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
        step, shared = f"screening {self.ask.op}", self._shared_pilots()
        alone = [place for place in self._pilots if place not in shared]
        swept = self._dealt(step, lambda: self._sweep_own(alone))
        if shared:
            told = self._team.together(step, lambda: self._sweep_parts(shared, swept))
            swept |= {place: self._merged(place, [own[place] for own in told]) for place in shared}
        others = [place for place in places if place not in swept]
        raced = self._dealt(step, lambda: self._race_share(others, swept))
        reports = {**swept, **raced}
        return [self._bucket(place, reports[place], place in shared) for place in places]

    def _dealt(self, step: str, work: Callable[[], dict[int, BucketReport]]) -> dict[int, BucketReport]:
        """Return each worker's reports of its own buckets, in one dictionary."""
        told = self._team.together(step, work)
        return {place: report for own in told for place, report in own.items()}

    @cached_property
    def _pilots(self) -> list[int]:
        """Return the pilots, or all buckets if a bucket's tactics say nothing about its neighbours'."""
        return pilots(self._rows, self._policy) if self._transfers else list(range(len(self._rows)))

    def _shared_pilots(self) -> list[int]:
        """Return the pilots with the longest launches; each worker measures part of their tactics."""
        if self._team.size == 1 or not self._ascending:
            return []
        least = self._rows[-1] / self._policy.pilot_every
        return [place for place in self._pilots if self._rows[place] >= least]

    def _merged(self, place: int, reports: Sequence[BucketReport]) -> BucketReport:
        return merge_reports(self.ask.where(self.profiles[place]), reports)

    def _bucket(self, place: int, report: BucketReport, shared: bool) -> Bucket:
        devices = self._team.size if shared else 1
        chosen = finalists(report.screened, self._policy, devices)
        return Bucket(self.profiles[place], self._rows[place], report, chosen)

    def _sweep_own(self, places: Sequence[int]) -> dict[int, BucketReport]:
        """Measure this worker's short pilots, which are neighbours."""
        self._load_kernels()
        swept: dict[int, BucketReport] = {}
        for place, bench, candidates in self._benches(places, self._own(places)):
            swept[place] = self._sweep(place, bench, candidates, candidates, swept)
        return swept

    def _own(self, places: Sequence[int]) -> Sequence[int]:
        if not self._transfers:  # nothing is lost between neighbours, and the long ones are spread
            return places[self._team.rank :: self._team.size]
        return runs(places, self._team.size)[self._team.rank]

    def _sweep_parts(
        self, places: Sequence[int], before: Mapping[int, BucketReport]
    ) -> dict[int, BucketReport]:
        """Measure this worker's part of the tactics in the longest pilots, the same part in each."""
        swept = dict(before)
        for place, bench, candidates in self._benches(places, places):
            share = part(candidates, self._team.size, self._team.rank)
            swept[place] = self._sweep(place, bench, candidates, share, swept)
        return {place: swept[place] for place in places}

    def _sweep(
        self,
        place: int,
        bench: Bench,
        candidates: list[Candidate],
        share: list[Candidate],
        swept: Mapping[int, BucketReport],
    ) -> BucketReport:
        last = max((pilot for pilot in self._pilots if pilot < place), default=-1)
        before = swept.get(last) if self._transfers else None
        _expect(bench, before.screened if before else {})
        seen = fitting(before.screened, candidates) if before else None
        chosen = worth_sweeping(share, seen, self._policy)
        return self._screen(bench, candidates, _with_default(chosen, share), pilot=True)

    def _benches(
        self, places: Sequence[int], own: Sequence[int]
    ) -> Iterator[tuple[int, Bench, list[Candidate]]]:
        """Yield this worker's buckets after all workers have listed the tactics of all buckets, because
        making a list may need the whole team (`rank_tactics`)."""
        if self._team.size == 1:
            for place in own:
                bench = self._bench(place)
                yield place, bench, bench.candidates()
            return
        listed = {place: self._bench(place).candidates() for place in places}
        for place in own:
            yield place, self._bench(place), listed[place]

    def _load_kernels(self) -> None:
        """Load kernels by launches of the smallest bucket, which are short on every worker."""
        if self._team.size == 1 or not self._transfers:
            return
        bench = self._bench(0)
        if bench.queues:
            candidates = bench.candidates()
            bench.load(candidates)
            bench.warm_clock(candidates[0], _CLOCK_WARM_UP_SECONDS)

    def _race_share(
        self, places: Sequence[int], swept: Mapping[int, BucketReport]
    ) -> dict[int, BucketReport]:
        who = dealt([self._race_cost(place, swept) for place in places], self._team.size)
        mine = [place for place, worker in zip(places, who, strict=True) if worker == self._team.rank]
        return {
            place: self._race(place, bench, candidates, swept)
            for place, bench, candidates in self._benches(places, mine)
        }

    def _race_cost(self, place: int, swept: Mapping[int, BucketReport]) -> float:
        """Estimate a race's cost: it launches each tactic about as often as the neighbouring pilots did."""
        near = [swept[pilot] for pilot in self._neighbours(place, swept)]
        return fmean(
            best_time(report.screened) * report.launches / max(1, len(report.screened)) for report in near
        )

    def _neighbours(self, place: int, swept: Mapping[int, BucketReport]) -> list[int]:
        below = max((pilot for pilot in swept if pilot < place), default=None)
        above = min((pilot for pilot in swept if pilot > place), default=None)
        return [pilot for pilot in (below, above) if pilot is not None]

    def _race(
        self, place: int, bench: Bench, candidates: list[Candidate], swept: Mapping[int, BucketReport]
    ) -> BucketReport:
        neighbours = [swept[pilot].screened for pilot in self._neighbours(place, swept)]
        _expect(bench, neighbours[0])
        chosen = shortlist(candidates, neighbours, self._policy)
        return self._screen(bench, candidates, _with_default(chosen, candidates), pilot=False)

    def _bench(self, place: int) -> Bench:
        return Bench(self.tuner, self.ask, self.profiles[place])

    def _screen(
        self, bench: Bench, candidates: list[Candidate], chosen: list[Candidate], pilot: bool
    ) -> BucketReport:
        policy = self._policy
        bench.prepare(chosen)
        if chosen:
            bench.warm_clock(chosen[0], _CLOCK_WARM_UP_SECONDS)
        screened = screen(chosen, bench.clock, policy, policy.sweep if pilot else policy.stages)
        standing = finalists(screened, policy)
        best = screened[standing[0]].time if standing else inf
        default = screened[DEFAULT].time if DEFAULT in screened else inf
        bucket = self.ask.bucket(bench.profile)
        self.tuner.watch(
            Progress(self.ask.op, bucket, "screen", len(candidates), len(standing), best, default)
        )
        return BucketReport(tuple(candidates), screened, dict(bench.failures), bench.launches)

    def settle(self, bucket: Bucket) -> tuple[Settled[Candidate], dict[Candidate, str]]:
        """Measure the finalists alone, in turns on one device, because no layer is known."""
        bench = Bench(self.tuner, self.ask, bucket.profile, bucket.best_ms if bucket.finalists else 0.0)
        bench.prepare(bucket.finalists)
        turn = WHOLE_TURN if self.tuner.queues and bucket.best_ms < _TURNS_BELOW_MS else 1

        def clock(alone: Sequence[tuple[Candidate, ...]], launches: int) -> list[float]:
            return bench.clock([candidate for (candidate,) in alone], launches)

        settled = settle([bucket.finalists], clock, self._policy, bench.expected_ms, turn)
        return settled, bench.failures


def _expect(bench: Bench, near: Mapping[Candidate, Screened]) -> None:
    bench.expected_ms = min((seen.time for seen in near.values()), default=0.0)


def _with_default(chosen: list[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Add the default tactic even if it is slow, so that the gain of tuning is measured."""
    missing = DEFAULT in candidates and DEFAULT not in chosen
    return [*chosen, DEFAULT] if missing else chosen
