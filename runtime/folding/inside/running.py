"""The calls that are recorded now, and what others say of it. Nothing here needs torch."""

from collections.abc import Callable
from typing import Any

recorders: list[Any] = []  # of a layer, and of the part of it that is called now
break_by: Any = None  # ends a graph, calls, begins the next one
folds = False  # whether equal layers are folded in this start
skipped = 0  # calls that were not made


def count(counts: list[int]) -> None:
    """Raise the first of these counts, now and for each call that is not made."""
    counts[0] += 1
    for one in recorders:
        one.counts.append(counts)


def between(inner: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the function, which ends or begins a captured graph, so that what it does is not recorded."""

    def outer(capture: Any) -> None:
        if recorders:
            recorders[-1].note(more=False)
        for one in recorders:
            one.cut()
        inner(capture)
        for one in recorders:
            one.resume()

    return outer
