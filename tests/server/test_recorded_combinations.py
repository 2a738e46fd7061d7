"""Combinations of flags that SGLang's checks may refuse, against the answers of its own wheels.

Recorded by `python -m tests.oracle.combinations --record ...`.
"""

from __future__ import annotations

import pytest

from tests.oracle.compare import FIELDS, Tally, page, tally
from tests.oracle.ours import our_answer
from tests.oracle.record import COMBINATIONS, read


@pytest.fixture(scope="module")
def found() -> Tally:
    return tally((command, our_answer(command), theirs) for command, theirs in read(COMBINATIONS))


def test_a_combination_is_refused_where_sglang_refuses_it(found: Tally) -> None:
    assert not found.apart["refused there, planned here"], "\n".join(page(found))
    assert not found.apart["refused here, started there"], "\n".join(page(found))
    assert found.both_refuse > 250
    assert found.both_answer > 250


@pytest.mark.parametrize("name", FIELDS)
def test_what_starts_is_resolved_as_sglang_resolves_it(name: str, found: Tally) -> None:
    assert found.rate(name) == 1, "\n".join(page(found))
