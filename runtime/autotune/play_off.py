"""Compares the finalists of a layer's ops: which combination makes the layer fastest. Decisions only."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite
from typing import Generic, TypeVar

from runtime.autotune.search import SearchPolicy

Candidate = TypeVar("Candidate", bound=Hashable)
Together = tuple[Candidate, ...]  # one of each op

# Milliseconds per launch of each combination, in one round; infinite if it failed.
LayerClock = Callable[[Sequence[Together[Candidate]], int], list[float]]


@dataclass(frozen=True, slots=True)
class Settled(Generic[Candidate]):
    """The winner of each op, empty if an op has no tactic, and each combination's time relative to one that
    ran in all rounds."""

    winners: tuple[Candidate, ...]
    times: dict[tuple[Candidate, ...], float]


@dataclass
class _Scores(Generic[Candidate]):
    """Rounds have different routings, and not every combination runs in each. So times are compared with
    those of one combination that runs in every round."""

    reference: Together[Candidate] | None = None
    _sums: dict[Together[Candidate], tuple[float, float]] = field(default_factory=dict)

    def add(
        self, running: Sequence[Together[Candidate]], times: Sequence[float]
    ) -> list[Together[Candidate]]:
        """Add a round's times, and return the combinations that did not fail."""
        sound = {names: time for names, time in zip(running, times, strict=True) if isfinite(time)}
        if self.reference is None:
            self.reference = next(iter(sound), None)
        if self.reference not in sound:  # nothing to compare with: what was known remains
            return [names for names in sound if names in self._sums]
        beside = sound[self.reference]
        for names, time in sound.items():
            own, others = self._sums.get(names, (0.0, 0.0))
            self._sums[names] = own + time, others + beside
        return list(sound)

    def of(self, names: Together[Candidate]) -> float:
        own, others = self._sums[names]
        return own / others

    def all(self) -> dict[Together[Candidate], float]:
        return {names: self.of(names) for names in self._sums}


def settle(
    sides: Sequence[Sequence[Candidate]],
    clock: LayerClock[Candidate],
    policy: SearchPolicy,
    expected_ms: float,
    turn: int = 1,
) -> Settled[Candidate]:
    """Run each op's finalists, fastest first, with the other ops' leaders; then the best of each op together,
    because a kernel may be fast only after a certain other one.

    Turns have a multiple of `turn` launches, there and back, so that a drifting clock affects all alike.
    """
    if not all(sides):
        return Settled((), {})
    leaders = tuple(side[0] for side in sides)
    running = list(
        dict.fromkeys(_beside(leaders, op, name) for op, side in enumerate(sides) for name in side)
    )
    launches = turn * max(1, round(policy.turn_ms / max(expected_ms, 1e-3) / turn))
    scores = _Scores[Candidate]()
    for played in range(1, policy.rounds + 1):
        left = scores.add(running, clock(running, launches))
        # Two kinds of routing alternate, so only whole pairs of rounds are compared.
        if played % 2 == 0:
            left = _near(left, scores, policy.round_margin * 2 / played)
            if played == 2:
                left += _crossed(leaders, scores, policy)
        running = left[::-1]
        if len(running) < 2:
            break
    left = [names for names in running if names in scores.all()]
    if not left:
        return Settled((), scores.all())
    return Settled(min(left, key=scores.of), scores.all())


def _beside(leaders: Together[Candidate], op: int, name: Candidate) -> Together[Candidate]:
    return (*leaders[:op], name, *leaders[op + 1 :])


def _near(
    running: Sequence[Together[Candidate]], scores: _Scores[Candidate], margin: float
) -> list[Together[Candidate]]:
    limit = min(map(scores.of, running), default=0.0) * (1 + margin)
    return [names for names in running if scores.of(names) <= limit or names == scores.reference]


def _crossed(
    leaders: Together[Candidate], scores: _Scores[Candidate], policy: SearchPolicy
) -> list[Together[Candidate]]:
    """Return combinations of each op's best tactics that have not run yet."""
    seen = scores.all()
    best = []
    for op, leader in enumerate(leaders):
        own = [names for names in seen if _beside(names, op, leader) == leaders]
        best.append([names[op] for names in sorted(own, key=scores.of)[: policy.crossed]])
    return [names for names in product(*best) if names not in seen]
