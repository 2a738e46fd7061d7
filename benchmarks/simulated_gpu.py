"""A GPU that profiles one bucket of a recorded shape: what its clock tells, and what the asking costs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean as mean
from typing import Any

from runtime.autotune.search import WHOLE_TURN

TABLES = Path(__file__).parent.parent / "tests/runtime/fixtures/h200_tactics.json"
LAUNCH_MS, SYNC_MS, EVENT_MS, BUCKET_MS = 0.03, 0.15, 0.008, 1.0  # the host's share


@dataclass(frozen=True)
class Noise:
    launch: float = 0.01
    disturbed: float = 0.01  # the share of launches that take up to half as long again
    drift: float = 0.006
    layer: float = 0.004  # of a turn in the layer
    tactic_on_device: float = 0.005


@dataclass(frozen=True)
class Bucket:
    shape: str
    op: str
    tokens: int
    times: tuple[float, ...]  # milliseconds
    routings: tuple[float, ...]  # of the best tactic, relative to their mean

    @property
    def best(self) -> float:
        return min(self.times)


@dataclass
class Gpu:
    """One GPU profiling one bucket: the clock of `screen`, and the time it has spent."""

    bucket: Bucket
    noise: Noise
    random: random.Random
    alone: bool = True
    spent_ms: float = BUCKET_MS
    launches: int = 0
    _turn: int = 1
    _sums: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sums = [list(sums) for sums in _routings(self.bucket)]
        self._own = [
            1.0 if self.alone else 1 + self.random.gauss(0, self.noise.tactic_on_device)
            for _ in self.bucket.times
        ]

    def clock(self, tactics: Sequence[int], launches: int) -> list[float]:
        self.spent_ms += SYNC_MS + EVENT_MS * len(tactics)
        return [self._measure(tactic, launches) for tactic in tactics]

    def _measure(self, tactic: int, launches: int) -> float:
        time = self.bucket.times[tactic] * self._own[tactic]
        sums, first = self._sums[tactic], self._turn % WHOLE_TURN
        turns, rest = divmod(launches, WHOLE_TURN)
        last = first + rest
        share = turns * WHOLE_TURN + sums[last] - sums[first]
        self._turn += launches
        self.launches += launches
        self.spent_ms += launches * max(time, LAUNCH_MS)
        host = 0.002 * self.random.random() / launches
        return time * share / launches * self._disturbance(launches) + host

    def _disturbance(self, launches: int) -> float:
        chance, noise = self.random, self.noise
        uneven = noise.launch * (0.8 + abs(chance.gauss(0, 0.6 / math.sqrt(launches))))
        factor = (1 + chance.gauss(0, noise.drift)) * (1 + uneven)
        hits = _hits(chance.random(), launches, noise.disturbed)
        return factor * (1 + hits * chance.uniform(0.05, 0.5) / launches) if hits else factor


def _hits(drawn: float, launches: int, share: float) -> int:
    """How many of the launches are disturbed, by one draw instead of one for each."""
    hits = 0
    at_most = exactly = (1 - share) ** launches
    while drawn > at_most and hits < launches:
        exactly *= share / (1 - share) * (launches - hits) / (hits + 1)
        at_most += exactly
        hits += 1
    return hits


@cache
def _routings(bucket: Bucket) -> tuple[tuple[float, ...], ...]:
    """Each tactic's running sum over two turns of the routings, whose mean is 1: the same on every GPU."""
    chance = random.Random(bucket.tokens)
    found = []
    for _ in bucket.times:
        power = chance.gauss(1.0, 0.15)
        shares = [value**power for value in bucket.routings]
        sums = [0.0]
        for share in (*shares, *shares):
            sums.append(sums[-1] + share / mean(shares))
        found.append(tuple(sums))
    return tuple(found)


@cache
def tables() -> dict[str, Any]:
    return json.loads(TABLES.read_text())


@cache
def shapes() -> tuple[str, ...]:
    return tuple(tables()["shapes"])


@cache
def buckets(shape: str) -> dict[str, tuple[Bucket, ...]]:
    return {
        op: tuple(
            Bucket(
                shape,
                op,
                int(tokens),
                tuple((one + other) / 2e3 for one, other in zip(*runs, strict=True)),
                _relative(tables()["routings"][shape][op][tokens]),
            )
            for tokens, runs in rows.items()
        )
        for op, rows in tables()["shapes"][shape].items()
    }


def _relative(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(time / mean(times) for time in times)
