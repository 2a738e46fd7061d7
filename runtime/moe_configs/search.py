"""Chooses the configuration of each batch size, compared with the server's own. Decisions only: the clock is
an argument."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from statistics import median

from runtime.autotune.play_off import settle
from runtime.autotune.search import (
    Clock,
    Screened,
    SearchPolicy,
    finalists,
    fitting,
    pilots,
    screen,
    shortlist,
    worth_sweeping,
)
from runtime.moe_configs.candidates import Choice, crossed

PRESENT = None  # what the server takes today: it races in every bucket
Named = Choice | None
Seen = dict[Named, Screened]
_DUELS, _MAY_LOSE, _GAIN = 8, 1, 1.01
_DUEL_MS, _MOST_CROSSED = 2.0, 8


@dataclass(frozen=True)
class Decided:
    """The result of one bucket. `choice` is PRESENT if nothing beat it beyond noise; `gain` is the best's."""

    rows: int
    choice: Named
    present_ms: float
    best_ms: float
    gain: float
    tried: int


def decide_all(
    buckets: Sequence[int],
    listed: Callable[[int], list[Choice]],
    bench: Callable[[int], AbstractContextManager[Clock[Named]]],
    policy: SearchPolicy,
    say: Callable[[Decided], object] = lambda _: None,
) -> list[Decided]:
    """Decide all buckets. Pilots try all choices that fit, the others those near their neighbours' best."""
    places = pilots(buckets, policy)
    swept, decided = dict[int, Seen](), dict[int, Decided]()
    for place in places:
        before = swept[max(swept)] if swept else None
        all_here = listed(buckets[place])
        chosen = worth_sweeping(all_here, _fitting(before, all_here) if before else None, policy)
        with bench(buckets[place]) as clock:
            swept[place], decided[place] = _decide(buckets[place], chosen, clock, policy.sweep, policy)
        say(decided[place])
    for place, rows in enumerate(buckets):
        if place not in swept:
            near = [max(p for p in places if p < place), min(p for p in places if p > place)]
            seen = [_fitting(swept[p], list(swept[p])) for p in near]
            chosen = [one for one in shortlist(listed(rows), seen, policy) if one is not PRESENT]
            with bench(rows) as clock:
                _, decided[place] = _decide(rows, chosen, clock, policy.stages, policy)
            say(decided[place])
    return [decided[place] for place in range(len(buckets))]


def _fitting(seen: Mapping[Named, Screened], here: Sequence[Named]) -> dict[Choice, Screened]:
    return {name: one for name, one in fitting(seen, here).items() if name is not PRESENT}


def _decide(
    rows: int, chosen: Sequence[Choice], clock: Clock[Named], stages: Sequence[int], policy: SearchPolicy
) -> tuple[Seen, Decided]:
    screened: Seen = screen([*chosen, PRESENT], clock, policy, stages)
    leaders = [one for one in finalists(screened, policy) if one is not PRESENT]
    more = crossed(leaders)[:_MOST_CROSSED]
    if more:
        again = screen([leaders[0], *more], clock, policy, policy.stages)
        screened |= {name: one for name, one in again.items() if name in more}
    standing = finalists(screened, policy)
    present = screened[PRESENT].time
    if not standing or standing == [PRESENT] or present == inf:
        return screened, Decided(rows, PRESENT, present, present, 1.0, len(screened))
    expected = screened[standing[0]].time
    best = _played(standing, clock, expected, policy)
    if best is PRESENT:
        return screened, Decided(rows, PRESENT, present, present, 1.0, len(screened))
    best_ms, present_ms, gain, wins = duel(best, clock, expected)
    return screened, Decided(rows, best if wins else PRESENT, present_ms, best_ms, gain, len(screened))


def _played(standing: Sequence[Named], clock: Clock[Named], expected: float, policy: SearchPolicy) -> Named:
    """Return the best finalist, compared in turns. One choice names both GEMMs, so `settle` gets one op."""

    def alone(together: Sequence[tuple[Named, ...]], launches: int) -> list[float]:
        return clock([name for (name,) in together], launches)

    winners = settle([list(standing)], alone, policy, expected).winners
    return winners[0] if winners else PRESENT


def duel(best: Named, clock: Clock[Named], expected: float) -> tuple[float, float, float, bool]:
    """Measure both in turns; return both times, how much faster `best` is, and whether beyond noise."""
    launches = max(1, round(_DUEL_MS / max(expected, 1e-3)))
    own, others = [], []
    for round_number in range(_DUELS):
        order: list[Named] = [best, PRESENT] if round_number % 2 else [PRESENT, best]
        times = dict(zip(order, clock(order, launches), strict=True))
        own.append(times[best])
        others.append(times[PRESENT])
    gains = [inf if other == inf else other / one for one, other in zip(own, others, strict=True)]
    wins = sum(gain > 1 for gain in gains) >= _DUELS - _MAY_LOSE and median(gains) >= _GAIN
    return median(own), median(others), median(gains), wins
