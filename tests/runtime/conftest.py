"""Rank processes shared by every test that needs real ones: starting them takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.ranks import Ranks, started


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    with started(4) as ranks:
        yield ranks
