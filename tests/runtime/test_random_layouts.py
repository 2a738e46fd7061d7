"""A random model of some families over a random layout; SGL_TUNE_RANDOM_LAYOUTS=30 asks all, for so many."""

from __future__ import annotations

import os

import pytest

from tests.runtime.families import TINY
from tests.runtime.random_layouts import outcomes
from tests.runtime.ranks import Ranks

COUNT = int(os.environ.get("SGL_TUNE_RANDOM_LAYOUTS", "0"))
SEED = int(os.environ.get("SGL_TUNE_RANDOM_SEED", "1"))
_EACH = 1 if COUNT else 16


@pytest.mark.parametrize("family", [*TINY][::_EACH])
def test_equal_or_refused_by_name(ranks: Ranks, family: str) -> None:
    found = list(outcomes(ranks, family, COUNT or 2, SEED))
    assert [one for one in found if one.kind == "DIFFERENT"] == []
    assert {one.kind for one in found} <= {"equal", "refused by name", "beyond fp32", "transformers refused"}
