"""`--timeout`: for how many seconds is waited, of which "not a number" and "without end" are none."""

from __future__ import annotations

import math
from typing import Any

from sgl_tune.cli.parameters import Option
from sgl_tune.errors import UsageError

_WEEK = 604800


def timeout_option(help: str, least: float = 1, most: float = _WEEK) -> Any:
    return Option("--timeout", metavar="SECONDS", min=least, max=most, help=help, callback=_number)


def _number(seconds: float) -> float:
    if math.isnan(seconds):  # no range that it would be out of
        raise UsageError("--timeout nan is no number of seconds", "such as 600")
    return seconds
