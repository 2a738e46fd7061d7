"""Which tactic is fastest, in as few launches as the answer needs. Decisions only: the clock is an argument.

Buckets of one shape have similar winners. A few of them (`pilots`) launch every tactic, the others only those
near the best of the neighbouring pilots (`shortlist`). `screen` launches its candidates in growing stages and
drops those that are slower than noise explains. The rest (`finalists`) meet in a play-off (`play_off`), in
the whole layer if there is one.

FlashInfer's MoE kernels alternate between 16 synthetic routings while they are profiled. A sample of one
tactic shows how much routings change its time; if it is much, times are only compared over all 16.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)

WHOLE_TURN = 16

# Milliseconds per launch of each, for so many launches in a row; infinite if it failed.
Clock = Callable[[Sequence[Candidate], int], list[float]]


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    pilot_every: int = 5  # times the rows of the pilot before
    sweep: tuple[int, ...] = (1, 3)  # launches a stage of a pilot, whose candidates are all there are
    stages: tuple[int, ...] = (1, 3)  # of the others
    near: float = 0.35  # of a pilot's best, to be tried in its neighbours
    most: int = 16
    hopeless: float = 1.7  # times the best of the pilot before: not tried in the next one
    uneven: float = 0.1  # a swing of the last stage beyond which only whole turns are compared
    uneven_stages: tuple[int, ...] = (4, WHOLE_TURN)
    samples: int = WHOLE_TURN  # single launches of one tactic, which tell the swing
    even_from_ms: float = 0.25  # longer kernels have so many rows that a quarter tells the swing,
    unseen: float = 2.0  # which may be that many times as large
    margin: float = 0.03
    jitter_ms: float = 0.003  # what a single launch may cost beyond its time
    other_device: float = 0.03  # two GPUs of one kind differ by this much
    finalists: int = 4
    # Shorter kernels race with three times the margin and twice as many finalists: a layer's forward costs
    # little there, and how a kernel meets the next one decides.
    short_ms: float = 0.06
    crossed: int = 2  # of each op, which run together once they ran alone
    rounds: int = 8
    turn_ms: float = 0.3  # of one finalist's turn in a round
    round_margin: float = 0.012  # after the first two, and less with each two more


@dataclass(frozen=True, slots=True)
class Screened:
    """A tactic's mean time in the last stage that it reached, and whether it stayed to the end."""

    time: float
    standing: bool


def pilots(buckets: Sequence[int], policy: SearchPolicy) -> list[int]:
    """Return the indexes of the pilots in `buckets`: the first, the last, and some between."""
    chosen: list[int] = []
    for place, rows in enumerate(buckets):
        last = place == len(buckets) - 1
        if last or not chosen or rows >= policy.pilot_every * buckets[chosen[-1]]:
            chosen.append(place)
    return chosen


def fitting(
    screened: Mapping[Candidate, Screened], candidates: Collection[Candidate]
) -> dict[Candidate, Screened]:
    """Return another bucket's results of these candidates; if none of them stayed to the end, all count."""
    seen = {name: one for name, one in screened.items() if name in candidates}
    if any(one.standing for one in seen.values()):
        return seen
    return {name: Screened(one.time, isfinite(one.time)) for name, one in seen.items()}


def worth_sweeping(
    candidates: Sequence[Candidate], before: Mapping[Candidate, Screened] | None, policy: SearchPolicy
) -> list[Candidate]:
    """Return the candidates for the next pilot, fastest first, without those far behind in the last one.

    `before` has only results of candidates that fit this bucket.
    """
    before = before or {}
    limit = policy.hopeless * best_time(before)
    # A tactic that failed in another bucket may work in this one.
    known = [n for n in candidates if n not in before or before[n].time <= limit or before[n].time == inf]
    return sorted(known, key=lambda name: before[name].time if name in before else inf)


def shortlist(
    candidates: Sequence[Candidate], neighbours: Sequence[Mapping[Candidate, Screened]], policy: SearchPolicy
) -> list[Candidate]:
    """Return the candidates near the best of a neighbouring pilot, and those that no pilot could run."""
    behind: dict[Candidate, float] = {}
    for neighbour in neighbours:
        seen = fitting(neighbour, candidates)
        best = best_time(seen)
        for name, one in seen.items():
            if isfinite(one.time) and one.time <= best * (1 + policy.near) + policy.jitter_ms:
                behind[name] = min(behind.get(name, inf), one.time / best)
    near = sorted(behind, key=lambda name: behind[name])
    known = {name for seen in neighbours for name in seen}
    return near[: policy.most] + [name for name in candidates if name not in known]


def screen(
    candidates: Sequence[Candidate], clock: Clock[Candidate], policy: SearchPolicy, stages: Sequence[int]
) -> dict[Candidate, Screened]:
    """Time the candidates in stages. The first ones should be likely winners, as one of them is sampled."""
    found: dict[Candidate, Screened] = {}
    launches, *later = stages
    times = dict(zip(candidates, clock(candidates, launches), strict=True))
    sample = _sample(times, clock, policy)
    if _swing(sample, stages[-1], policy) > policy.uneven:
        later = list(policy.uneven_stages)
    while times:
        limit = _limit(min(times.values()), launches, _swing(sample, launches, policy), policy)
        standing = [name for name, time in times.items() if isfinite(time) and time <= limit]
        found.update({name: Screened(time, name in standing) for name, time in times.items()})
        if len(standing) < 2 or not later:
            break
        launches, *later = later
        times = dict(zip(standing, clock(standing, launches), strict=True))
    return found


def best_time(screened: Mapping[Candidate, Screened]) -> float:
    """Return the best time of those that stayed to the end; a dropped one may have had only easy routings."""
    return min((seen.time for seen in screened.values() if seen.standing), default=inf)


def finalists(
    screened: Mapping[Candidate, Screened], policy: SearchPolicy, devices: int = 1
) -> list[Candidate]:
    """Return the candidates that may be the best, fastest first. Empty if every tactic failed."""
    standing, best = [name for name, seen in screened.items() if seen.standing], best_time(screened)
    margin = _margin(best, policy) + policy.other_device * (devices > 1)
    near = [name for name in standing if screened[name].time <= best * (1 + margin)]
    most = policy.finalists * (2 if best < policy.short_ms else 1)
    return sorted(near, key=lambda name: screened[name].time)[:most]


def _sample(once: Mapping[Candidate, float], clock: Clock[Candidate], policy: SearchPolicy) -> list[float]:
    """Return times of single launches of the first candidate that is not hopeless."""
    best = min(once.values(), default=inf)
    likely = [name for name, time in once.items() if time <= policy.hopeless * best and isfinite(time)][:1]
    times = clock(likely * (policy.samples // 4), 1)
    if not times or min(times) > policy.even_from_ms:
        return times
    return times + clock(likely * (policy.samples - len(times)), 1)


def _swing(sample: Sequence[float], launches: int, policy: SearchPolicy) -> float:
    """Return how much slower so many launches in a row can be than others, only because of routings."""
    if launches >= len(sample):
        return 0.0
    around = [*sample, *sample]
    sums = [sum(around[first : first + launches]) for first in range(len(sample))]
    swing = max(sums) / min(sums) - 1
    return swing if len(sample) == policy.samples else policy.unseen * swing


def _limit(best: float, launches: int, swing: float, policy: SearchPolicy) -> float:
    jitter = policy.jitter_ms if launches == 1 else 0.0
    return best * (1 + swing) * (1 + _margin(best, policy)) + jitter


def _margin(best: float, policy: SearchPolicy) -> float:
    return policy.margin * (3 if best < policy.short_ms else 1)


def runs(places: Sequence[int], workers: int) -> list[Sequence[int]]:
    """Divide the places into one run per worker, because a bucket's results help with its neighbour."""
    least, more = divmod(len(places), workers)
    ends = [least * worker + min(worker, more) for worker in range(workers + 1)]
    return [places[first:end] for first, end in pairwise(ends)]


def part(candidates: Sequence[Candidate], workers: int, worker: int) -> list[Candidate]:
    """Return a worker's share, the same in every bucket. Lists are sorted by kind, so each gets all kinds."""
    return [c for n, c in enumerate(candidates) if (n // workers + n) % workers == worker]


def dealt(costs: Sequence[float], workers: int) -> list[int]:
    """Return which worker does each: the longest first, each given to the worker with the least work."""
    load, chosen = [0.0] * workers, [0] * len(costs)
    for place in sorted(range(len(costs)), key=lambda place: -costs[place]):
        chosen[place] = load.index(min(load))
        load[chosen[place]] += costs[place]
    return chosen
