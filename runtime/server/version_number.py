"""What orders versions, SGLang's and FlashInfer's, by itself: the rows of both are more than that."""

from __future__ import annotations

from functools import lru_cache

from runtime.server.bounds import is_number


@lru_cache
def number(version: str) -> tuple[int, ...]:
    """`0.5.12.post1` -> (0, 5, 12): enough to order releases."""
    parts: list[int] = []
    for piece in version.split("."):
        if not is_number(piece):
            break
        parts.append(int(piece))
    return tuple(parts[:3])
