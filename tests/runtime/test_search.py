"""The search's decisions: right where times are clear, at the noise floor where they are not, and cheap."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from benchmarks.simulated_gpu import shapes
from benchmarks.simulated_search import replayed, simulate_search, simulate_stock
from runtime.autotune.play_off import Settled, settle
from runtime.autotune.search import (
    Screened,
    SearchPolicy,
    dealt,
    finalists,
    pilots,
    screen,
    shortlist,
    worth_sweeping,
)

POLICY = SearchPolicy(samples=8)
FLASHINFERS = (*(1 << power for power in range(9)), *range(512, 2048, 256), *range(2048, 4097, 512))


class Clock:
    """Exact times, and a count of the launches that each tactic cost."""

    def __init__(self, times: dict[str, float]) -> None:
        self.times, self.launches, self.calls = times, Counter[str](), 0

    def __call__(self, tactics: Sequence[str], launches: int) -> list[float]:
        self.calls += 1
        for tactic in tactics:
            self.launches[tactic] += launches
        return [self.times[tactic] for tactic in tactics]


class LayerClock(Clock):
    """The sum of the ops' times."""

    def __call__(self, tactics: Sequence[tuple[str, ...]], launches: int) -> list[float]:  # type: ignore[override]
        return [sum(super(LayerClock, self).__call__(names, launches)) for names in tactics]


def _search(times: dict[str, float], policy: SearchPolicy = POLICY) -> tuple[Settled[str], Clock]:
    clock = Clock(times)
    chosen = finalists(screen(list(times), clock, policy, policy.sweep), policy)
    settled = settle([chosen], lambda alone, n: clock([name for (name,) in alone], n), policy, 1.0)
    return settled, clock


def test_the_fastest_wins_and_hopeless_tactics_are_launched_once() -> None:
    result, clock = _search({"first": 1.0, "slow": 2.0, "best": 0.5, "near": 0.502})
    assert result.winners == ("best",)
    assert clock.launches["slow"] == 1
    assert clock.launches["near"] == 1 + 3 + POLICY.rounds


def test_a_stage_of_all_candidates_is_one_question_to_the_clock() -> None:
    """One call of the clock is one synchronisation with the device."""
    clock = Clock({str(n): 1.0 + n / 1000 for n in range(45)})
    screen(list(clock.times), clock, POLICY, (1, 3))
    assert clock.calls == 1 + 2


def test_a_failed_tactic_loses() -> None:
    result, clock = _search({"broken": inf, "works": 1.0})
    assert result.winners == ("works",)
    assert clock.launches["broken"] <= 3


@pytest.mark.parametrize("times", [{}, {"a": inf}, {"a": inf, "b": inf}])
def test_nothing_wins_where_nothing_works(times: dict[str, float]) -> None:
    result, _ = _search(times)
    assert result.winners == ()


def test_what_uneven_launches_leave_standing_is_compared_over_whole_turns() -> None:
    class Uneven(Clock):
        turn = 0

        def __call__(self, tactics: Sequence[str], launches: int) -> list[float]:
            even = super().__call__(tactics, launches)
            uneven = []
            for time in even:
                self.turn += 1
                uneven.append(time * (2 if launches == 1 and self.turn % 8 == 0 else 1))
            return uneven

    clock = Uneven({"a": 0.215, "b": 0.2})
    seen = screen(["a", "b"], clock, POLICY, (1, 3))
    assert seen == {"a": Screened(0.215, False), "b": Screened(0.2, True)}
    assert clock.launches["b"] == 1 + 4 + 16


def test_pilots_are_the_first_the_last_and_some_between() -> None:
    assert [FLASHINFERS[place] for place in pilots(FLASHINFERS, POLICY)] == [1, 8, 64, 512, 2560, 4096]
    assert pilots([7], POLICY) == [0]
    assert pilots([], POLICY) == []


def test_a_pilot_leaves_out_what_was_far_behind_in_the_one_before() -> None:
    before = {"far": Screened(1.8, False), "slow": Screened(1.6, False), "best": Screened(1.0, True)}
    assert worth_sweeping(["far", "slow", "best", "new"], before, POLICY) == ["best", "slow", "new"]
    assert worth_sweeping(["far", "best"], None, POLICY) == ["far", "best"]


def test_a_bucket_tries_what_stood_near_the_best_of_either_neighbour() -> None:
    below = {"a": Screened(1.0, True), "b": Screened(1.3, False), "far": Screened(2.0, False)}
    above = {"a": Screened(9.0, False), "c": Screened(3.0, True), "far": Screened(6.0, False)}
    assert shortlist(["a", "b", "c", "far"], [below, above], POLICY) == ["a", "c", "b"]
    assert shortlist(["a", "b", "c"], [below, above], replace(POLICY, most=2)) == ["a", "c"]


def test_the_ops_of_a_layer_are_settled_side_by_side() -> None:
    clock = LayerClock({"a": 1.0, "b": 0.9, "x": 2.0, "y": 1.8})
    settled = settle([["a", "b"], ["x", "y"]], clock, POLICY, 3.0)
    assert settled.winners == ("b", "y")
    assert set(settled.times) == {("a", "x"), ("b", "x"), ("a", "y"), ("b", "y")}


def test_a_leader_that_fails_later_takes_nobody_along() -> None:
    played = 0

    def clock(alone: Sequence[tuple[str, ...]], launches: int) -> list[float]:
        nonlocal played
        played += 1
        return [inf if names == ("a",) and played > 2 else 1.0 + (names == ("c",)) / 100 for names in alone]

    assert settle([["a", "b", "c"]], clock, POLICY, 1.0).winners == ("b",)


def test_what_is_fast_only_together_wins() -> None:
    """`b` is the faster one only together with `y`, not with `x`, the leader of the other op."""
    times = {("a", "x"): 3.0, ("b", "x"): 3.1, ("a", "y"): 2.99, ("b", "y"): 2.5}

    def clock(combinations: Sequence[tuple[str, ...]], launches: int) -> list[float]:
        return [times[names] for names in combinations]

    assert settle([["a", "b"], ["x", "y"]], clock, POLICY, 3.0).winners == ("b", "y")


def test_a_drifting_clock_does_not_decide() -> None:
    """The device gets slower with each turn. Turns run forward and backward, so both meet the same."""
    now = 1.0

    def clock(combinations: Sequence[tuple[str, ...]], launches: int) -> list[float]:
        nonlocal now
        times = []
        for names in combinations:
            now *= 1.01
            times.append(now * (0.998 if names == ("best",) else 1.0))
        return times

    assert settle([["other", "best"]], clock, POLICY, 1.0).winners == ("best",)
    now = 1.0
    assert settle([["best", "other"]], clock, POLICY, 1.0).winners == ("best",)


def test_one_routing_alone_gives_nobody_up() -> None:
    """On one of the two routings `a` is far behind, on the other far ahead. Only both together decide."""
    played = 0

    def clock(combinations: Sequence[tuple[str, ...]], launches: int) -> list[float]:
        nonlocal played
        played += 1
        a = 1.1 if played % 2 else 0.7
        return [a if names == ("a",) else 1.0 for names in combinations]

    assert settle([["b", "a"]], clock, POLICY, 1.0).winners == ("a",)


@pytest.mark.parametrize("shape", shapes())
def test_on_recorded_times_the_search_is_no_worse_than_stocks_and_ten_times_faster(shape: str) -> None:
    """Stock's own runs differ by 0.1 to 0.3 % on average, and by 3 % at worst if routings are even."""
    ours, stock = replayed(shape, 60), simulate_stock(shape, seed=1)
    assert ours.regret <= 0.003 and ours.usual_worst <= 0.03
    assert ours.regret <= stock.regret
    assert ours.seconds < stock.seconds / 10


@pytest.mark.parametrize(
    ("costs", "workers", "who"),
    [
        ([], 2, []),
        ([1, 1, 1], 1, [0, 0, 0]),
        ([1, 5, 2, 2], 2, [1, 0, 1, 1]),
        ([3, 3, 2, 2, 2], 2, [0, 1, 0, 1, 0]),
        ([inf, 1, 1], 2, [0, 1, 1]),
    ],
)
def test_buckets_are_dealt_out_by_what_they_cost(costs: list[float], workers: int, who: list[int]) -> None:
    assert dealt(costs, workers) == who


def test_a_quarter_of_the_routings_hides_some_of_the_swing() -> None:
    """Four launches of a long kernel differ by 4 %, so a tactic may be 8 % behind only by its routing."""

    class Uneven(Clock):
        def __call__(self, tactics: Sequence[str], launches: int) -> list[float]:
            even = super().__call__(tactics, launches)
            alike = len(tactics) > 1 and len(set(tactics)) == 1
            return [time * (1.04 if alike and n % 2 else 1) for n, time in enumerate(even)]

    for unseen, standing in ((1.0, False), (2.0, True)):
        policy = SearchPolicy(unseen=unseen)
        seen = screen(["a", "b"], Uneven({"a": 1.0, "b": 1.09}), policy, (1,))
        assert seen["b"].standing is standing


def test_four_gpus_share_the_work() -> None:
    one, four = simulate_search("glm-5.1-moe-ep8", 1), simulate_search("glm-5.1-moe-ep8", 1, workers=4)
    assert four.seconds < 0.45 * one.seconds and four.regret <= 0.003


def test_careless_screening_would_show_in_the_simulation() -> None:
    """With one launch per tactic, the search has the regret that the policy's stages avoid."""
    careless = replace(SearchPolicy(), sweep=(1,), stages=(1,), samples=0, uneven=inf, margin=0.0, rounds=2)
    assert replayed("glm-5.1-moe-ep8", 2, policy=careless).regret > 0.005
