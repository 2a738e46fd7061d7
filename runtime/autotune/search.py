"""Which tactic is fastest, in as few launches as the answer needs. Decisions only: the clock is an argument.

FlashInfer's MoE kernels take turns through 16 synthetic routings while they are profiled, so times are only
comparable over whole turns; with fewer launches the spread between routings is a known error. `screen`
launches every tactic once, keeps what that error cannot rule out for a few launches more, and again for a
whole turn. `finalists` are those that noise cannot tell from the best. `play_off` measures them in turns, on
one device, for longer than FlashInfer itself would have measured each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import mean, median, pstdev
from typing import Generic, TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)

WHOLE_TURN = 16


@dataclass(frozen=True, slots=True)
class Effort:
    """One measurement: untimed launches, timed ones, and how long the device waits for them to queue up."""

    warmup: int
    repeat: int
    delay_us: int


Measure = Callable[[Candidate, Effort], float]  # milliseconds; infinite where the tactic failed


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    stages: tuple[int, ...] = (1, 4, WHOLE_TURN)  # launches
    samples: int = WHOLE_TURN  # single launches of one tactic, which tell the spread
    uneven: float = 0.15  # a spread beyond which only whole turns are compared
    margin: float = 0.06
    errors: float = 3.0  # standard errors that a tactic may be behind
    jitter_ms: float = 0.005  # what a first launch may cost beyond its time
    other_device: float = 0.03  # two GPUs of one kind differ by this much
    full: int = WHOLE_TURN
    rounds: int = 3
    round_margin: float = 0.02
    start_us: int = 150
    launch_us: int = 80  # what the host needs to queue one launch

    def effort(self, launches: int, kernel_ms: float, warmup: int = 0) -> Effort:
        """Kernels shorter than their launches must queue up first, or the host would be measured."""
        ahead = max(0.0, self.launch_us - kernel_ms * 1e3)
        return Effort(warmup, launches, self.start_us + round(launches * ahead))


@dataclass(frozen=True, slots=True)
class Screened:
    """One tactic: its mean time in the last stage it reached, and whether that was the end."""

    time: float
    standing: bool


@dataclass(frozen=True, slots=True)
class PlayOff(Generic[Candidate]):
    """The winner is one of those that stayed to the end; None where every finalist failed."""

    winner: Candidate | None
    times: dict[Candidate, float]


def screen(
    candidates: Sequence[Candidate], measure: Measure[Candidate], policy: SearchPolicy
) -> dict[Candidate, Screened]:
    """One worker's share; the first candidate should be a likely winner."""
    found: dict[Candidate, Screened] = {}
    sample = _sample(candidates, measure, policy)
    stages = policy.stages if sample.spread <= policy.uneven else policy.stages[-1:]
    standing = list(candidates)
    for launches in stages:
        # The sampled tactic may be a poor one: others may take half its time.
        effort = policy.effort(launches, sample.time / 2)
        times = {name: measure(name, effort) for name in standing}
        limit = _limit(min(times.values(), default=inf), launches, sample.spread, policy)
        standing = [name for name in standing if isfinite(times[name]) and times[name] <= limit]
        found.update({name: Screened(time, name in standing) for name, time in times.items()})
    return found


def finalists(
    screened: Mapping[Candidate, Screened], policy: SearchPolicy, devices: int = 1
) -> list[Candidate]:
    """Everything that may be the best, fastest first. Empty where every tactic failed."""
    standing = [name for name, seen in screened.items() if seen.standing]
    best = min((screened[name].time for name in standing), default=inf)
    margin = policy.margin + policy.other_device * (devices > 1)
    near = [name for name in standing if screened[name].time <= best * (1 + margin)]
    return sorted(near, key=lambda name: screened[name].time)


def play_off(
    contenders: Sequence[Candidate], measure: Measure[Candidate], policy: SearchPolicy, fastest: float = 0.0
) -> PlayOff[Candidate]:
    """In turns, so that a drifting clock disturbs all alike; the median of the rounds counts."""
    effort = policy.effort(policy.full, fastest, warmup=1)
    seen: dict[Candidate, list[float]] = {name: [] for name in contenders}
    running = list(contenders)
    for _ in range(policy.rounds):
        for name in running:
            seen[name].append(measure(name, effort))
        running = [name for name in running if isfinite(median(seen[name]))]
        best = min((median(seen[name]) for name in running), default=inf)
        running = [name for name in running if median(seen[name]) <= best * (1 + policy.round_margin)]
        if len(running) < 2:
            break
    times = {name: median(measured) for name, measured in seen.items()}
    return PlayOff(min(running, key=lambda name: times[name], default=None), times)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Single launches of one tactic: the shortest, and how far they are apart relative to their mean."""

    time: float
    spread: float


def _sample(candidates: Sequence[Candidate], measure: Measure[Candidate], policy: SearchPolicy) -> _Sample:
    effort = policy.effort(1, 0.0)
    for name in candidates:
        times = [measure(name, effort) for _ in range(policy.samples)]
        if all(map(isfinite, times)):
            return _Sample(min(times), pstdev(times) / mean(times))
    return _Sample(0.0, 0.0)


def _limit(best: float, launches: int, spread: float, policy: SearchPolicy) -> float:
    """A sample of `launches` of the routings errs by this much; two such samples are compared."""
    error = spread * sqrt(2 * max(0.0, 1 / launches - 1 / WHOLE_TURN))
    jitter = policy.jitter_ms if launches == 1 else 0.0
    return best * (1 + policy.margin + policy.errors * error) + jitter
