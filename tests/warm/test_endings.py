"""However and whenever warm ends: nothing of it stays, and its exit code says how it ended."""

import os
from pathlib import Path

import pytest

from tests.warm.endings import SIGNALS, endings


@pytest.mark.slow
def test_no_ending_at_any_moment_leaves_anything_behind(tmp_path: Path) -> None:
    """Set ENDINGS and SEED to search more endings."""
    count, seed = int(os.environ.get("ENDINGS", "1")), int(os.environ.get("SEED", "1"))
    found = [(ending.moment, ending.faults) for ending in endings(count, seed, tmp_path)]
    assert len(found) == count * len(SIGNALS)
    assert [each for each in found if each[1]] == []
