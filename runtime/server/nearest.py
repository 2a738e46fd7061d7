"""Which name was meant. Only asked once one is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

_CLOSE = 2.5  # beyond, a suggestion is a guess
_SLIP = 0.9  # swapping two letters or doubling one happens sooner than writing another


def nearest(word: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The closest names, best first; of equals the one that shares the longer beginning."""
    letters = Counter(word)
    scored = []
    for name in names:
        if abs(len(name) - len(word)) > _CLOSE or _unshared(letters, name) > 2 * _CLOSE:
            continue
        distance = _distance(word, name)
        if distance <= _CLOSE:
            scored.append((distance, -_shared_start(word, name), len(name), name))
    return [name for *_, name in sorted(scored)[:count]]


def meant(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?`, in no matter which case, where something known is near."""
    names = {name.lower(): name for name in known}
    close = [names[name] for name in nearest(word.lower(), names)]
    return f"did you mean {' or '.join(close)}?" if close else None


def _unshared(letters: Counter[str], name: str) -> int:
    other = Counter(name)
    return sum((letters - other).values()) + sum((other - letters).values())


def _shared_start(one: str, other: str) -> int:
    return sum(takewhile(bool, (a == b for a, b in zip(one, other, strict=False))))


def _distance(word: str, name: str) -> float:
    """Letters to drop, add, replace or swap on the way from `name` to `word`."""
    before: list[float] = []
    last = [float(i) for i in range(len(name) + 1)]
    for i, letter in enumerate(word, 1):
        row = [float(i)]
        for j, other in enumerate(name, 1):
            doubled = i > 1 and letter == word[i - 2]
            best = min(
                last[j] + (_SLIP if doubled else 1.0),
                row[j - 1] + (_SLIP if j > 1 and other == name[j - 2] else 1.0),
                last[j - 1] + (letter != other),
            )
            if i > 1 and j > 1 and letter == name[j - 2] and word[i - 2] == other and letter != other:
                best = min(best, before[j - 2] + _SLIP)
            row.append(best)
        before, last = last, row
    return last[-1]
