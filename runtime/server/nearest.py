"""Suggests the name that was meant, once a name has been refused."""

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return `did you mean ...?` if a known name is similar, ignoring case; else None."""
    names = {name.lower(): name for name in known}
    cutoff = 0.75 if len(word) > 4 else 0.6  # one letter is a larger part of a short word
    close = get_close_matches(word[:200].lower(), names, n=1, cutoff=cutoff)
    return f"did you mean {names[close[0]]}?" if close else None
