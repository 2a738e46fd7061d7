"""Two ways to do the same, in turns until it is clear which is faster, or for as long as anybody waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

_MOST_TURNS = 64
# A machine's whims favour either side in turn: this many standard deviations more than half of the turns.
_CLEAR = 3.0


@dataclass(frozen=True, slots=True)
class Comparison:
    one_ms: float
    other_ms: float
    gain: float  # how many times longer the other took, in the middle turn
    turns: int
    clear: bool


def in_turns(
    one: Callable[[], float],
    other: Callable[[], float],
    seconds: float,
    now: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Each returns its milliseconds. Who goes first changes with each turn."""
    ones: list[float] = []
    others: list[float] = []
    end = now() + seconds
    while True:
        order = [(one, ones), (other, others)]
        for run, times in order if len(ones) % 2 == 0 else order[::-1]:
            times.append(run())
        clear = _is_clear(ones, others)
        if clear or len(ones) == _MOST_TURNS or now() >= end:
            gain = median(theirs / ours for ours, theirs in zip(ones, others, strict=True))
            return Comparison(median(ones), median(others), gain, len(ones), clear)


def _is_clear(ones: list[float], others: list[float]) -> bool:
    turns = len(ones)
    won = sum(ours < theirs for ours, theirs in zip(ones, others, strict=True))
    return abs(won - turns / 2) >= _CLEAR * math.sqrt(turns) / 2
