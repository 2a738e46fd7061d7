"""A random model of some families; SGL_TUNE_RANDOM_MODELS=30 asks for more, of all."""

from __future__ import annotations

import os

import pytest

from tests.runtime.families import TINY
from tests.runtime.random_models import outcomes
from tests.sweeps import taken

_ASKED = os.environ.get("SGL_TUNE_RANDOM_MODELS")
COUNT = int(_ASKED or 1)
SEED = int(os.environ.get("SGL_TUNE_RANDOM_SEED", "1"))


@pytest.mark.parametrize("family", TINY if _ASKED else taken(TINY))
def test_equal_or_refused_by_name(family: str) -> None:
    found = list(outcomes(family, COUNT, SEED))
    assert [one for one in found if one.kind == "DIFFERENT"] == []
    assert {one.kind for one in found} <= {"equal", "refused by name", "beyond fp32", "transformers refused"}
