"""Kernels that a start would compile, by name."""

from __future__ import annotations

from runtime.ghost.inside.stream import say

_seen: set[str] = set()


def seen(library: str, name: str) -> None:
    """Report a kernel that a start would compile, once."""
    if name not in _seen:
        _seen.add(name)
        say("kernel", library=library, name=name)
