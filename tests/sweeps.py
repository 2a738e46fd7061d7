"""Sweeps over many like cases: an ordinary run takes a third of each, the same every time.

`make sweeps` takes all of them, as does whatever writes down what is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar
from zlib import crc32

Case = TypeVar("Case")
WHOLE = "SGL_TUNE_WHOLE_SWEEPS" in os.environ or "SGL_TUNE_REWRITE" in os.environ
SHARE = 3


def is_taken(case: object) -> bool:
    """By how it is written: another case beside it changes nothing."""
    return WHOLE or crc32(str(case).encode()) % SHARE == 0


def taken(cases: Iterable[Case]) -> Sequence[Case]:
    found = [case for case in cases if is_taken(case)]
    assert found, "a sweep of which an ordinary run takes nothing"
    return found
