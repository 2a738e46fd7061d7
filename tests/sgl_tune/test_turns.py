"""Two runs in turns: what differs is told, what does not is not, and nobody waits for ever."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from sgl_tune.warm.turns import Comparison, in_turns


class Machine:
    """Its clock runs with what it does; it is disturbed for a while, and now and then."""

    def __init__(self, seed: int) -> None:
        self.now, self._chance = 0.0, random.Random(seed)

    def run(self, ms: float) -> Callable[[], float]:
        def once() -> float:
            slow = 1.5 if self.now % 0.7 < 0.3 else 1.0
            took = ms * slow * self._chance.choice([1, 1, 1, 3]) * self._chance.uniform(0.97, 1.03)
            self.now += took / 1e3
            return took

        return once


def _compared(seed: int, one_ms: float, other_ms: float, seconds: float = 3.0) -> Comparison:
    machine = Machine(seed)
    return in_turns(machine.run(one_ms), machine.run(other_ms), seconds, lambda: machine.now)


@pytest.mark.parametrize("faster", [True, False])
def test_a_fifth_is_seen_on_a_busy_machine(faster: bool) -> None:
    for seed in range(50):
        seen = _compared(seed, 10, 12) if faster else _compared(seed, 12, 10)
        assert seen.clear and (seen.gain > 1) is faster


def test_nothing_is_seldom_taken_for_something() -> None:
    assert sum(_compared(seed, 10, 10).clear for seed in range(200)) < 12


def test_a_slow_pair_ends_with_the_patience_and_says_that_it_is_not_clear() -> None:
    seen = _compared(1, 2000, 2000)
    assert seen.turns <= 2 and not seen.clear


def test_the_fewest_turns_that_can_tell() -> None:
    seen = in_turns(lambda: 1.0, lambda: 2.0, 3.0)
    assert seen == Comparison(1.0, 2.0, 2.0, 9, True)
