"""What workers tell each other comes back the same from JSON, and is nothing but what they may tell."""

import json
from math import inf
from typing import Any

import pytest

from runtime.autotune.agreement import BucketReport, Terms
from runtime.autotune.bench import Candidate
from runtime.autotune.play_off import Settled
from runtime.autotune.search import Screened
from runtime.autotune.team import from_wire, to_wire

ONE, OTHER = Candidate(0, -1), Candidate(1, ((128, 64), "stream_k", True))
TOLD = [
    None,
    ("text", 1, 2.5, True, None, inf),
    [1, [2, (3,)]],
    {"names": {1: "one", (2, 3): ["two"]}},
    Terms("op", ("a", "b"), ("b",), {"gpu": "H200"}),
    ([BucketReport((ONE, OTHER), {ONE: Screened(0.25, True)}, {OTHER: "no such kernel"}, 7)], None),
    ({3: (Settled((OTHER,), {(ONE,): 0.5, (OTHER,): inf}), {})}, ("out of memory", True)),
]


@pytest.mark.parametrize("told", TOLD, ids=range(len(TOLD)))
def test_what_is_told_comes_back_the_same(told: Any) -> None:
    assert from_wire(json.loads(json.dumps(to_wire(told)))) == told


class _Array:
    """As a kernel library's own array: neither a list nor a tuple."""

    def __iter__(self) -> Any:
        return iter((64, 128))


def test_a_foreign_array_is_a_tuple_of_numbers() -> None:
    assert from_wire(to_wire(_Array())) == (64, 128)


@pytest.mark.parametrize("odd", [object(), {"lambda": print}])
def test_nothing_else_can_be_told(odd: Any) -> None:
    with pytest.raises(TypeError, match="workers cannot share"):
        to_wire(odd)


@pytest.mark.parametrize("odd", [["system", "id"], ["Candidate", 1], ["Candidate", 1, 2, 3]])
def test_nothing_else_is_made_of_what_comes(odd: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        from_wire(odd)
