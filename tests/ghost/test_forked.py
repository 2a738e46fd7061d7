"""When two records of one start count as the same."""

from __future__ import annotations

from dataclasses import replace

from tests.ghost.forked import CHEAP, differing
from tests.ghost.real_starts import real_starts
from tests.sgl_tune.memory.records import GUESS, ready


def test_seconds_and_costs_are_no_difference() -> None:
    one = ready()
    slower = tuple(replace(phase, seconds=phase.seconds + 1) for phase in one.phases)
    assert not list(differing(one, replace(one, phases=slower, cost=replace(one.cost, cpu=99.0))))


def test_a_byte_in_any_phase_is_a_difference() -> None:
    one = ready()
    for place, phase in enumerate(one.phases):
        phases = (*one.phases[:place], replace(phase, peak=phase.peak + 1), *one.phases[place + 1 :])
        (found,) = differing(one, replace(one, phases=phases))
        assert found == f"{phase.name}: peak {phase.peak} and {phase.peak + 1}"
    assert list(differing(one, replace(one, phases=one.phases[1:]))) == ["the phases' names"]


def test_what_made_a_record_inexact_is_a_difference() -> None:
    assert list(differing(ready(), ready(GUESS))) == ["inexact"]


def test_ten_starts_on_one_gpu_are_compared() -> None:
    known = {start.name: start.gpus for start in real_starts()}
    assert [known[name] for name in CHEAP] == [1] * 10
