"""The rules' tables and functions, row by row, as they were when somebody last looked at them.

What a wheel says of a row is held elsewhere (tests/server/test_releases.py, test_stores.py,
test_recorded_weights.py); the rest is our own answer, kept so that no change of a rule passes unseen. After
one that was meant: `SGL_TUNE_REWRITE=1 pytest -n0 tests/book/test_tables.py`, and look at what this test
printed before.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

from runtime.server.decoders.fields import architecture_of
from runtime.server.decoders.known import FAMILIES
from runtime.server.decoders.wrappers import WRAPPERS, wrapper_of
from tests.book.cases import checkpoints
from tests.book.members import MEMBERS_OF, is_made
from tests.book.plain import differences
from tests.book.tables import TABLES, kept, made, write


@cache
def _then() -> dict[str, dict[str, Any]]:
    if os.environ.get("SGL_TUNE_REWRITE"):
        try:
            write()
        except AssertionError as twice:  # or each table's test would begin anew
            pytest.exit(str(twice), 1)
    return kept()


def test_each_family_has_a_checkpoint() -> None:
    """`python -m tests.book.checkpoints` adds those of new ones."""
    known = {one["model_type"] for one in checkpoints().values()}
    named = {name for family in FAMILIES.values() for name in family.by_architecture.items()}
    told = {architecture_of(one) for one in checkpoints().values()}
    known |= {family for architecture, family in named if architecture in told}
    known |= {found.model_type for found in map(wrapper_of, checkpoints().values()) if found is not None}
    assert {*FAMILIES, *WRAPPERS} - known == set()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_it_said(name: str) -> None:
    then = _then()[name]
    if name in MEMBERS_OF:
        then = {row: told for row, told in then.items() if is_made(row)}
    apart = [*differences(then, made(name))]
    assert not apart, f"{len(apart)} rows are others:\n" + "\n".join(apart[:20])
