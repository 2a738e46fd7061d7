"""The search on simulated GPUs: what it decides on recorded tactic times, and what that costs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean as mean

from benchmarks.simulated_gpu import (
    BUCKET_MS,
    LAUNCH_MS,
    SYNC_MS,
    Bucket,
    Gpu,
    Noise,
    buckets,
)
from runtime.autotune.play_off import settle
from runtime.autotune.search import (
    Screened,
    SearchPolicy,
    best_time,
    dealt,
    finalists,
    part,
    pilots,
    runs,
    screen,
    shortlist,
    worth_sweeping,
)

WARM_UP_MS = 25.0
EXCHANGE_MS = 4.0  # all workers' reports of a step
READY_MS, ROUTE_MS = 1.0, 0.25  # a combination's first forward and its graph; a round's routing
LAYER_MS, LAYER_MS_A_ROW = 0.012, 3.5e-5  # of a forward beside its two products
DEFAULT = 0  # the default is the first tactic by another name

Swept = dict[int, dict[int, Screened]]
Found = tuple[Bucket, list[int], float]  # a bucket, its finalists, the best time


@dataclass(frozen=True)
class Outcome:
    """Of all buckets of a shape. Regret: how much slower the winner is than the best, in truth."""

    regret: float
    worst: float
    seconds: float
    launches: float


def simulate_search(shape: str, seed: int, workers: int = 1, policy: SearchPolicy | None = None) -> Outcome:
    policy, chance = policy or SearchPolicy(), random.Random(seed)
    team = _Team(policy, chance, workers)
    found = [team.screened(op) for op in buckets(shape).values()]
    together = list(zip(*found, strict=True))
    costs = [sum(len(chosen) * (1.0 + best) for _, chosen, best in places) for places in together]
    who = dealt(costs, workers)
    won = [
        winner
        for worker, places in zip(who, together, strict=True)
        for winner in team.settled(places, worker)
    ]
    team.meet()
    return _outcome(won, team.seconds, team.launches)


@dataclass
class _Team:
    policy: SearchPolicy
    chance: random.Random
    workers: int
    launches: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._spent = [WARM_UP_MS] * self.workers  # since they met
        self._loaded: list[set[int]] = []
        self._cost: dict[Bucket, float] = {}

    def meet(self) -> None:
        self.seconds += (max(self._spent) + EXCHANGE_MS * (self.workers > 1)) / 1e3
        self._spent = [0.0] * self.workers

    def screened(self, op: tuple[Bucket, ...]) -> list[Found]:
        chosen = pilots([bucket.tokens for bucket in op], self.policy)
        least = op[-1].tokens / self.policy.pilot_every
        shared = [place for place in chosen if self.workers > 1 and op[place].tokens >= least]
        self._loaded = [set() for _ in range(self.workers)]
        self.meet()
        swept = self._swept_alone(op, [place for place in chosen if place not in shared])
        self.meet()
        if shared:
            swept |= self._swept_in_parts(op, shared, swept)
            self.meet()
        found = swept | self._raced(op, swept)
        self.meet()
        return [
            (
                bucket,
                finalists(found[place], self.policy, self.workers if place in shared else 1),
                bucket.best,
            )
            for place, bucket in enumerate(op)
        ]

    def _swept_alone(self, op: tuple[Bucket, ...], places: Sequence[int]) -> Swept:
        swept: Swept = {}
        for worker, own in enumerate(runs(places, self.workers)):
            if self.workers > 1:
                self._load(op[0], worker, range(len(op[0].times)))
            before: dict[int, Screened] | None = None
            for place in own:
                chosen = worth_sweeping(range(len(op[place].times)), before, self.policy)
                swept[place] = before = self._screen(op[place], worker, chosen, self.policy.sweep)
        return swept

    def _swept_in_parts(self, op: tuple[Bucket, ...], places: Sequence[int], swept: Swept) -> Swept:
        told: Swept = {place: {} for place in places}
        for worker in range(self.workers):
            before = swept.get(max(swept, default=-1))
            share = part(range(len(op[0].times)), self.workers, worker)
            for place in places:
                chosen = worth_sweeping(share, before, self.policy)
                before = self._screen(op[place], worker, chosen, self.policy.sweep, DEFAULT in share)
                told[place] |= before
        return told

    def _raced(self, op: tuple[Bucket, ...], swept: Mapping[int, dict[int, Screened]]) -> Swept:
        raced: Swept = {}
        others = [place for place in range(len(op)) if place not in swept]
        near = {place: _neighbours(place, swept) for place in others}
        costs = [mean(self._cost[op[pilot]] for pilot in near[place]) for place in others]
        for worker, place in zip(dealt(costs, self.workers), others, strict=True):
            seen = [swept[pilot] for pilot in near[place]]
            chosen = shortlist(range(len(op[place].times)), seen, self.policy)
            raced[place] = self._screen(op[place], worker, chosen, self.policy.stages)
        return raced

    def _screen(
        self,
        bucket: Bucket,
        worker: int,
        chosen: Sequence[int],
        stages: tuple[int, ...],
        with_default: bool = True,
    ) -> dict[int, Screened]:
        gpu = Gpu(bucket, Noise(), random.Random(self.chance.random()), self.workers == 1)
        self._load(bucket, worker, chosen)
        seen = screen(chosen, gpu.clock, self.policy, stages)
        prepared = bucket.times[chosen[0]] if chosen else 0.0
        self._spent[worker] += gpu.spent_ms + prepared + bucket.times[DEFAULT] * with_default
        self.launches += gpu.launches
        cost = best_time(seen) * gpu.launches / max(1, len(seen))
        self._cost[bucket] = max(cost, self._cost.get(bucket, 0.0))
        return seen

    def _load(self, bucket: Bucket, worker: int, tactics: Sequence[int]) -> None:
        """First launches."""
        new = set(tactics) - self._loaded[worker]
        self._loaded[worker] |= new
        self._spent[worker] += sum(max(bucket.times[tactic], LAUNCH_MS) for tactic in new)

    def settled(self, places: Sequence[Found], worker: int) -> Iterator[tuple[Bucket, int]]:
        """In the layer, whose time is its products' and a rest."""
        layer = _Layer(self.chance, [bucket for bucket, _, _ in places])
        expected = sum(best for _, _, best in places)
        done = settle([chosen for _, chosen, _ in places], layer.clock, self.policy, expected)
        self._spent[worker] += layer.spent_ms
        yield from zip((bucket for bucket, _, _ in places), done.winners, strict=True)


@dataclass
class _Layer:
    chance: random.Random
    buckets: Sequence[Bucket]
    spent_ms: float = BUCKET_MS
    _known: set[tuple[int, ...]] = field(default_factory=set)

    def clock(self, combinations: Sequence[tuple[int, ...]], launches: int) -> list[float]:
        times = [self._time(tactics) for tactics in combinations]
        for tactics, time in zip(combinations, times, strict=True):
            self.spent_ms += launches * time + LAUNCH_MS
            self.spent_ms += (READY_MS + time) * (tactics not in self._known)
        self._known.update(combinations)
        self.spent_ms += SYNC_MS + ROUTE_MS
        return [time * (1 + self.chance.gauss(0, Noise().layer)) for time in times]

    def _time(self, tactics: tuple[int, ...]) -> float:
        products = sum(b.times[tactic] for b, tactic in zip(self.buckets, tactics, strict=True))
        return LAYER_MS + LAYER_MS_A_ROW * self.buckets[0].tokens + products


def _neighbours(place: int, swept: Mapping[int, object]) -> tuple[int, int]:
    return max(pilot for pilot in swept if pilot < place), min(pilot for pilot in swept if pilot > place)


def simulate_stock(shape: str, seed: int) -> Outcome:
    chance, spent, won, launches = random.Random(seed), 0.0, [], 0
    for op in buckets(shape).values():
        for bucket in op:
            gpu = Gpu(bucket, Noise(), random.Random(chance.random()))
            times = []
            for tactic in range(len(bucket.times)):
                gpu.clock([tactic], 3)
                times += gpu.clock([tactic], 10)
                gpu.spent_ms += 5.0  # FlashInfer lets the device wait for the host
            won.append((bucket, times.index(min(times))))
            spent += gpu.spent_ms
            launches += gpu.launches
    return _outcome(won, spent / 1e3, launches)


def _outcome(won: Sequence[tuple[Bucket, int]], seconds: float, launches: float) -> Outcome:
    regret = [bucket.times[tactic] / bucket.best - 1 for bucket, tactic in won]
    return Outcome(mean(regret), max(regret), seconds, launches)


@dataclass(frozen=True)
class Summary:
    """`worst` is the worst of all replays, `usual_worst` the mean of each replay's worst bucket."""

    seconds: float
    regret: float
    usual_worst: float
    worst: float
    launches: float


def over(outcomes: Sequence[Outcome]) -> Summary:
    return Summary(
        mean(o.seconds for o in outcomes),
        mean(o.regret for o in outcomes),
        mean(o.worst for o in outcomes),
        max(o.worst for o in outcomes),
        mean(o.launches for o in outcomes),
    )


def replayed(shape: str, replays: int, workers: int = 1, policy: SearchPolicy | None = None) -> Summary:
    return over([simulate_search(shape, seed, workers, policy) for seed in range(replays)])
