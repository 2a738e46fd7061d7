"""Which tactic is fastest, in as few launches as the answer needs. Decisions only: the clock is an argument.

Three steps. `screen` launches every tactic once and gives up at once on the hopeless ones; the rest are
launched a few times more and keep their best time, because disturbances only ever add. `finalists` are those
that the observed noise cannot tell from the best. `play_off` measures them in turns, on one device, for
longer than FlashInfer itself would have measured every tactic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Generic, TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Effort:
    """One measurement: untimed launches, timed ones, and how long the device waits for them to queue up."""

    warmup: int
    repeat: int
    delay_us: int


Measure = Callable[[Candidate, Effort], float]  # milliseconds; infinite where the tactic failed


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    glance: Effort = Effort(warmup=0, repeat=1, delay_us=100)
    glances: int = 3
    hopeless: float = 1.5
    jitter_ms: float = 0.01  # what a first launch may cost beyond its time
    margin: float = 0.05
    noise_margins: float = 2.0
    other_device: float = 0.03  # two GPUs of one kind differ by this much
    full: Effort = Effort(warmup=1, repeat=5, delay_us=500)
    rounds: int = 5
    round_margin: float = 0.02


@dataclass(frozen=True, slots=True)
class Screened:
    """What is known of one tactic: its best time, and how far its glances were apart (0: only one)."""

    time: float
    spread: float = 0.0
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class PlayOff(Generic[Candidate]):
    """The winner is one of those that stayed to the end; None where every finalist failed."""

    winner: Candidate | None
    times: dict[Candidate, float]


def screen(
    candidates: Iterable[Candidate], measure: Measure[Candidate], policy: SearchPolicy
) -> dict[Candidate, Screened]:
    """One worker's share. The likely winners should come first: they make the others hopeless sooner."""
    found: dict[Candidate, Screened] = {}
    best = inf
    for candidate in candidates:
        times = [measure(candidate, policy.glance)]
        if times[0] > best * policy.hopeless + policy.jitter_ms:
            found[candidate] = Screened(times[0], hopeless=True)
            continue
        if isfinite(times[0]):
            times += [measure(candidate, policy.glance) for _ in range(policy.glances - 1)]
        found[candidate] = Screened(min(times), _spread(times))
        best = min(best, min(times))
    return found


def finalists(
    screened: Mapping[Candidate, Screened], policy: SearchPolicy, devices: int = 1
) -> list[Candidate]:
    """Everything that may be the best, fastest first. Empty where every tactic failed."""
    standing = [name for name, seen in screened.items() if isfinite(seen.time) and not seen.hopeless]
    if not standing:
        return []
    best = min(screened[name].time for name in standing)
    close = [name for name in standing if screened[name].time <= 2 * best]
    noise = median(screened[name].spread for name in close)
    margin = policy.margin + policy.noise_margins * noise + policy.other_device * (devices > 1)
    near = [name for name in close if screened[name].time <= best * (1 + margin)]
    return sorted(near, key=lambda name: screened[name].time)


def play_off(
    contenders: Sequence[Candidate], measure: Measure[Candidate], policy: SearchPolicy
) -> PlayOff[Candidate]:
    """In turns, so that a drifting clock disturbs all alike; the median of the rounds counts."""
    seen: dict[Candidate, list[float]] = {name: [] for name in contenders}
    running = list(contenders)
    for _ in range(policy.rounds):
        for name in running:
            seen[name].append(measure(name, policy.full))
        running = [name for name in running if isfinite(median(seen[name]))]
        best = min((median(seen[name]) for name in running), default=inf)
        running = [name for name in running if median(seen[name]) <= best * (1 + policy.round_margin)]
        if len(running) < 2:
            break
    times = {name: median(measured) for name, measured in seen.items()}
    return PlayOff(min(running, key=lambda name: times[name], default=None), times)


def _spread(times: Sequence[float]) -> float:
    return sorted(times)[1] / min(times) - 1 if len(times) > 2 else 0.0
