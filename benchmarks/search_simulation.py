"""The search's decisions on recorded tactic times with simulated noise: regret and cost. No GPU needed.

    PYTHONPATH=. python benchmarks/search_simulation.py
    ... search_simulation.py --replays 1000 --curve-replays 100 --svg docs/search.svg

The recorded times (one H200, the mean of two runs) are the truth; a simulated GPU adds to each launch the
spread between the 16 routings that the kernels take turns through, a drifting clock, disturbances, and a
difference between GPUs. FlashInfer's own 3 + 10 launches meet the same noise. `--svg` draws, for every switch
of the policy, cost against regret at several of its values, over all shapes.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean as mean
from typing import Any

from benchmarks.record import write_record
from benchmarks.simulated_gpu import (
    BUCKET_MS,
    LAUNCH_MS,
    SYNC_MS,
    Bucket,
    Gpu,
    Noise,
    buckets,
    shapes,
)
from benchmarks.svg import Curve, page
from runtime.autotune.play_off import settle
from runtime.autotune.search import (
    Screened,
    SearchPolicy,
    best_time,
    dealt,
    finalists,
    pilots,
    screen,
    shortlist,
    worth_sweeping,
)

LAYER_MS = 0.02  # of a forward beside its two products
SWITCHES: dict[str, tuple[Any, ...]] = {
    "pilot_every": (2, 4, 8, 32),
    "sweep": ((1,), (1, 3), (1, 4, 10)),
    "stages": ((1,), (1, 3), (2, 4, 10)),
    "near": (0.1, 0.2, 0.35, 0.6),
    "most": (6, 10, 16, 30),
    "hopeless": (1.3, 1.7, 2.5, 4.0),
    "samples": (2, 4, 8, 16),
    "uneven": (0.03, 0.1, 0.3, math.inf),
    "margin": (0.01, 0.02, 0.04, 0.08),
    "finalists": (1, 2, 4, 8),
    "crossed": (1, 2, 3, 6),
    "rounds": (2, 4, 8, 12),
    "round_margin": (0.005, 0.01, 0.02, 0.05),
}


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
    return _outcome(won, max(team.spent) / 1e3, team.launches)


@dataclass
class _Team:
    policy: SearchPolicy
    chance: random.Random
    workers: int
    launches: int = 0

    def __post_init__(self) -> None:
        self.spent = [0.0] * self.workers
        self._cost: dict[Bucket, float] = {}

    def screened(self, op: tuple[Bucket, ...]) -> list[tuple[Bucket, list[int], float]]:
        policy, swept = self.policy, dict[int, dict[int, Screened]]()
        chosen = pilots([bucket.tokens for bucket in op], policy)
        shared = [
            p for p in chosen if self.workers > 1 and op[p].tokens * policy.pilot_every >= op[-1].tokens
        ]
        alone = [place for place in chosen if place not in shared]
        for number, place in enumerate(alone):
            before = swept[alone[number - 1]] if number and self.workers == 1 else None
            chosen_ones = worth_sweeping(range(len(op[place].times)), before, policy)
            swept[place] = self._screen(op[place], number % self.workers, chosen_ones, policy.sweep)
        for place in shared:
            before, seen = swept.get(chosen[chosen.index(place) - 1]), dict[int, Screened]()
            for worker in range(self.workers):
                share = range(len(op[place].times))[(worker - place) % self.workers :: self.workers]
                seen |= self._screen(op[place], worker, worth_sweeping(share, before, policy), policy.sweep)
            swept[place] = seen
        found = dict(swept)
        others = [place for place in range(len(op)) if place not in swept]
        neighbours = {place: _neighbours(place, sorted(swept)) for place in others}
        costs = [max(self._cost[op[near]] for near in neighbours[place]) for place in others]
        for worker, place in zip(dealt(costs, self.workers), others, strict=True):
            near = [swept[other] for other in neighbours[place]]
            chosen = shortlist(range(len(op[place].times)), near, policy)
            found[place] = self._screen(op[place], worker, chosen, policy.stages)
        return [
            (bucket, finalists(found[place], policy, self.workers if place in shared else 1), bucket.best)
            for place, bucket in enumerate(op)
        ]

    def _screen(
        self, bucket: Bucket, worker: int, chosen: Sequence[int], stages: tuple[int, ...]
    ) -> dict[int, Screened]:
        gpu = Gpu(bucket, Noise(), random.Random(self.chance.random()), self.workers == 1)
        seen = screen(chosen, gpu.clock, self.policy, stages)
        self.spent[worker] += gpu.spent_ms
        self.launches += gpu.launches
        self._cost[bucket] = best_time(seen) * gpu.launches / max(1, len(seen))
        return seen

    def settled(
        self, places: Sequence[tuple[Bucket, list[int], float]], worker: int
    ) -> Iterator[tuple[Bucket, int]]:
        """In the layer, whose time is its products' and a rest."""

        def clock(combinations: Sequence[tuple[int, ...]], launches: int) -> list[float]:
            times = [
                LAYER_MS + sum(place[0].times[tactic] for place, tactic in zip(places, tactics, strict=True))
                for tactics in combinations
            ]
            self.spent[worker] += launches * sum(times) + SYNC_MS + LAUNCH_MS * len(times)
            return [time * (1 + self.chance.gauss(0, Noise().layer)) for time in times]

        layer_ms = LAYER_MS + sum(best for _, _, best in places)
        done = settle([chosen for _, chosen, _ in places], clock, self.policy, layer_ms)
        self.spent[worker] += BUCKET_MS * len(done.times)  # their first forwards and their graphs
        yield from zip((bucket for bucket, _, _ in places), done.winners, strict=True)


def _neighbours(place: int, swept: list[int]) -> tuple[int, int]:
    return next((low, high) for low, high in pairwise(swept) if low < place < high)


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replays", type=int, default=20, help="of each table")
    parser.add_argument("--curve-replays", type=int, default=20, help="of each table at each point")
    parser.add_argument("--svg", type=Path, help="draw cost against regret for every switch, here")
    parser.add_argument("--out")
    options = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(_compared(pool, options.replays))
        curves = _switches(pool, options.curve_replays) if options.svg else {}
    if options.svg:
        options.svg.write_text(_drawn(curves, options.curve_replays))
        print(options.svg)
    record = {
        "replays": options.replays,
        "curve_replays": options.curve_replays,
        "rows": rows,
        "switches": curves,
    }
    print(write_record("search_simulation", record, options.out))


def _compared(pool: ProcessPoolExecutor, replays: int) -> Iterator[dict[str, Any]]:
    print(
        f"{'shape':18} {'search':13} {'seconds':>8} {'regret':>8} {'worst':>7} {'of all':>7} {'launches':>9}"
    )
    for shape in shapes():
        stock = over([simulate_stock(shape, seed) for seed in range(min(replays, 20))])
        found = {"FlashInfer's": stock}
        counts = (1, 2, 4, 8)
        ours = pool.map(partial(replayed, shape, replays), counts)
        found |= {
            f"ours, {count} GPU" + "s" * (count > 1): one for count, one in zip(counts, ours, strict=True)
        }
        for name, one in found.items():
            print(
                f"{shape:18} {name:13} {one.seconds:8.2f} {one.regret:8.2%} {one.usual_worst:7.2%} "
                f"{one.worst:7.2%} {one.launches:9.0f}",
                flush=True,
            )
            yield {"shape": shape, "search": name, **one.__dict__}


def _switches(pool: ProcessPoolExecutor, replays: int) -> dict[str, list[dict[str, Any]]]:
    """Each switch at its values, everything else as it is: means over the shapes."""
    jobs = {
        (name, value, shape): pool.submit(
            replayed, shape, replays, 1, replace(SearchPolicy(), **{name: value})
        )
        for name, values in SWITCHES.items()
        for value in values
        for shape in shapes()
    }
    curves: dict[str, list[dict[str, Any]]] = {}
    for name, values in SWITCHES.items():
        for value in values:
            found = [jobs[name, value, shape].result() for shape in shapes()]
            point = {"value": str(value), "is_default": getattr(SearchPolicy(), name) == value}
            point |= {
                "seconds": mean(one.seconds for one in found),
                "regret": mean(one.regret for one in found),
            }
            point |= {"usual_worst": mean(one.usual_worst for one in found)}
            curves.setdefault(name, []).append(point)
    return curves


def _drawn(curves: dict[str, list[dict[str, Any]]], replays: int) -> str:
    drawn = [
        Curve(
            name,
            [(point["seconds"], 100 * point["regret"]) for point in points],
            [point["value"] for point in points],
            next((n for n, point in enumerate(points) if point["is_default"]), None),
        )
        for name, points in curves.items()
    ]
    title = f"Search on {len(shapes())} recorded shapes, {replays} replays each: seconds, mean regret in %"
    return page(title, drawn)


if __name__ == "__main__":
    main()
