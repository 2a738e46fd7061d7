"""Rows of the checks that no kept command meets, on what is told otherwise until they refuse it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.server.checks import ROWS
from runtime.server.checks.row import Refusal
from tests.book.conditions import Otherwise, commands, holding, holds, looked_at, others, settled
from tests.book.rows import Row

_EVERY, _STEPS = 35, 8


def unmet() -> Iterator[Row]:
    known = [c for _, command in commands() if (c := settled(command)) is not None]
    met = {id(row) for c in known for row in holding(c)}
    for row in ROWS:
        if id(row) not in met:
            found = next(filter(None, (_refused(row, c) for c in known[::_EVERY])), None)
            yield f"{row.said}, since {row.since}", found and dict(looked_at(row, found))


def _refused(row: Refusal, c: Any) -> Any:
    """One change after the other, each of which lets the row look further, or None where that ends."""
    if not row.stands_in(c.release):
        return None
    for _ in range(_STEPS):
        looking = Otherwise(c)
        if holds(row, looking) is True:
            return c
        c = next((one for one in _beside(c, looking.seen) if _looks_further(row, one, looking)), None)
        if c is None:
            break
    return None


def _looks_further(row: Refusal, one: Otherwise, before: Otherwise) -> bool:
    return holds(row, one) is True or len(one.seen) > len(before.seen)


def _beside(c: Any, seen: dict[str, Any]) -> Iterator[Otherwise]:
    for name, value in seen.items():
        if name != "release":
            yield from (Otherwise(c, **{name: other}) for _, other in others(c, name, value))


UNMET_OF = {"unmet": unmet}
