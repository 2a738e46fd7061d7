"""Which name was meant. Only asked once one is refused."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?`, in no matter which case, where something known is near."""
    names = {name.lower(): name for name in known}
    cutoff = 0.75 if len(word) > 4 else 0.6  # one letter of a short word is more of it
    close = get_close_matches(word[:200].lower(), names, n=1, cutoff=cutoff)
    return f"did you mean {names[close[0]]}?" if close else None
