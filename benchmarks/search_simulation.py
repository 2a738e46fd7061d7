"""The search's decisions on recorded tactic times with simulated noise: regret and saved time. No GPU needed.

    PYTHONPATH=. python benchmarks/search_simulation.py

The recorded times (one H200, two runs of FlashInfer's own tuning) are the truth; a simulated GPU adds to each
launch the spread between the 16 routings that the kernels take turns through, a drifting clock, disturbances,
and a difference between GPUs. FlashInfer's own 3 + 10 launches meet the same noise. "Other run" judges a
winner by the second run's times, whose own winners are 0.14 to 0.25 % off on average, 2.8 % at worst.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from benchmarks.record import write_record
from runtime.autotune.search import (
    WHOLE_TURN,
    Effort,
    Screened,
    SearchPolicy,
    finalists,
    play_off,
    screen,
)

TABLES = Path(__file__).parent.parent / "tests/runtime/fixtures/h200_tactics.json"
STOCK = Effort(warmup=3, repeat=10, delay_us=5000)
HOST_MS = 0.15  # of one measurement
ROUTING_SPREAD = {"glm-5.1-moe-ep8": 0.6, "qwen3-30b-a3b-tp1": 0.2}  # at one token, falling with its root


@dataclass(frozen=True)
class Noise:
    launch: float = 0.01
    disturbed: float = 0.01  # the share of launches that take up to half as long again
    drift: float = 0.004
    device: float = 0.01
    tactic_on_device: float = 0.005


@dataclass(frozen=True)
class Bucket:
    shape: str
    op: str
    tokens: int
    times: list[float]  # milliseconds
    other_run: list[float]


@dataclass
class Gpu:
    """One GPU profiling one bucket: a clock for `screen` and `play_off`, and the time it has spent."""

    bucket: Bucket
    noise: Noise
    random: random.Random
    alone: bool
    spent_ms: float = 0.0
    _turn: int = 1
    _factors: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        routings = random.Random(self.bucket.tokens)  # the same on every GPU, as FlashInfer seeds them
        spread = ROUTING_SPREAD[self.bucket.shape] / math.sqrt(self.bucket.tokens)
        heavy = [math.exp(routings.gauss(0, spread)) for _ in range(WHOLE_TURN)]
        for _ in self.bucket.times:
            shares = [value ** routings.uniform(0.7, 1.2) for value in heavy]
            own = 1.0 if self.alone else 1 + self.random.gauss(0, self.noise.tactic_on_device)
            self._factors.append([own * share / mean(shares) for share in shares])

    def measure(self, tactic: int, effort: Effort) -> float:
        time, drift = self.bucket.times[tactic], 1 + self.random.gauss(0, self.noise.drift)
        self._turn += effort.warmup
        launches = []
        for _ in range(effort.repeat):
            factor = self._factors[tactic][self._turn % WHOLE_TURN]
            launches.append(time * factor * drift * self._disturbance())
            self._turn += 1
        self.spent_ms += (effort.warmup + effort.repeat) * time + effort.delay_us / 1e3 + HOST_MS
        cold = self.random.uniform(0.001, 0.006) if effort.repeat == 1 else 0.0
        return mean(launches) + cold

    def _disturbance(self) -> float:
        factor = 1 + abs(self.random.gauss(0, self.noise.launch))
        if self.random.random() < self.noise.disturbed:
            factor *= 1 + self.random.uniform(0.05, 0.5)
        return factor


@dataclass(frozen=True)
class Outcome:
    """Of all buckets of a shape. Regret: how much slower the winner is than the best, in truth."""

    regret: float
    worst: float
    other_run: float
    other_worst: float
    seconds: float
    finalists: float = 0.0


def buckets(shape: str) -> Iterator[Bucket]:
    for op, rows in json.loads(TABLES.read_text())["shapes"][shape].items():
        for tokens, (first, second) in rows.items():
            yield Bucket(shape, op, int(tokens), [t / 1e3 for t in first], [t / 1e3 for t in second])


def simulate_search(
    shape: str, seed: int, workers: int = 1, policy: SearchPolicy | None = None, noise: Noise | None = None
) -> Outcome:
    policy, noise, chance = policy or SearchPolicy(), noise or Noise(), random.Random(seed)
    spent = [0.0] * workers
    won: list[tuple[Bucket, int]] = []
    counts: list[int] = []
    hints: dict[int, Screened] = {}
    for number, bucket in enumerate(buckets(shape)):
        if bucket.tokens == 1:
            hints = {}
        gpus = [Gpu(bucket, noise, random.Random(chance.random()), workers == 1) for _ in range(workers)]
        seen: dict[int, Screened] = {}
        for worker, gpu in enumerate(gpus):
            share = list(range(len(bucket.times)))[(worker - number) % workers :: workers]
            share.sort(key=lambda tactic: hints[tactic].time if tactic in hints else math.inf)
            seen |= screen(share, gpu.measure, policy)
        hints |= seen
        chosen = finalists(seen, policy, workers)
        fastest = min(seen[tactic].time for tactic in chosen)
        result = play_off(chosen, gpus[number % workers].measure, policy, fastest)
        assert result.winner is not None
        won.append((bucket, result.winner))
        counts.append(len(chosen))
        spent = [total + gpu.spent_ms for total, gpu in zip(spent, gpus, strict=True)]
    return _outcome(won, max(spent) / 1e3, mean(counts))


def simulate_stock(shape: str, seed: int, noise: Noise | None = None) -> Outcome:
    noise, chance, spent = noise or Noise(), random.Random(seed), 0.0
    won = []
    for bucket in buckets(shape):
        gpu = Gpu(bucket, noise, random.Random(chance.random()), alone=True)
        times = [gpu.measure(tactic, STOCK) for tactic in range(len(bucket.times))]
        won.append((bucket, times.index(min(times))))
        spent += gpu.spent_ms
    return _outcome(won, spent / 1e3)


def _outcome(won: list[tuple[Bucket, int]], seconds: float, finalists: float = 0.0) -> Outcome:
    regret = [bucket.times[tactic] / min(bucket.times) - 1 for bucket, tactic in won]
    other = [bucket.other_run[tactic] / min(bucket.other_run) - 1 for bucket, tactic in won]
    return Outcome(mean(regret), max(regret), mean(other), max(other), seconds, finalists)


def _over(outcomes: list[Outcome]) -> Outcome:
    return Outcome(
        mean(o.regret for o in outcomes),
        max(o.worst for o in outcomes),
        mean(o.other_run for o in outcomes),
        max(o.other_worst for o in outcomes),
        mean(o.seconds for o in outcomes),
        mean(o.finalists for o in outcomes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    print(
        f"{'shape':18} {'search':12} {'seconds':>8} {'saved':>6} {'regret':>14} {'other run':>14} finalists"
    )
    rows = []
    for shape in ROUTING_SPREAD:
        stock = _over([simulate_stock(shape, seed) for seed in range(options.seeds)])
        found = {"FlashInfer's": stock}
        for workers in (1, 2, 4, 8):
            found[f"ours, {workers} GPU" + "s" * (workers > 1)] = _over(
                [simulate_search(shape, seed, workers) for seed in range(options.seeds)]
            )
        for name, outcome in found.items():
            saved = 1 - outcome.seconds / stock.seconds
            other = f"{outcome.other_run:6.2%}/{outcome.other_worst:7.2%}"
            print(
                f"{shape:18} {name:12} {outcome.seconds:8.2f} {saved:6.1%} "
                f"{outcome.regret:6.2%}/{outcome.worst:7.2%} {other} {outcome.finalists:9.1f}"
            )
            rows.append({"shape": shape, "search": name, **outcome.__dict__})
    print(write_record("search_simulation", {"seeds": options.seeds, "rows": rows}, options.out))


if __name__ == "__main__":
    main()
