"""A few hundred deployments, and all that the rules decide of each, as it was when somebody last looked.

They were drawn at random, by every generator of the oracle and with members of their configs changed, and
chosen so that they run every line of the rules that any of them ran. What a wheel was asked of a command is
held elsewhere (tests/server/test_recorded_*.py); all here is our own answer, kept so that no change of a
rule passes unseen. After one that was meant: `SGL_TUNE_REWRITE=1 pytest -n0 tests/book/test_deployments.py`,
and look at what this test printed before.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.book.answers import answer
from tests.book.cases import Answer, Case, read, write
from tests.book.plain import differences

PARTS = 16


@cache
def _pairs() -> list[tuple[Case, Answer]]:
    if os.environ.get("SGL_TUNE_REWRITE"):
        write((case, answer(case)) for case, _ in read())
    return read()


@pytest.mark.parametrize("part", range(PARTS))
def test_a_deployment_is_decided_as_it_was(part: int) -> None:
    apart = [
        f"{case}\n    {told}"
        for case, then in _pairs()[part::PARTS]
        for told in differences(then, answer(case))
    ]
    assert not apart, f"{len(apart)} members are others:\n" + "\n".join(apart[:20])
