"""A row a combination of flags that SGLang refuses, and a few ways to write rows that are alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.backends import FIRST, Number
from runtime.server.choices import Choices, arguments
from runtime.server.flags import flags_of
from runtime.server.releases import NEWEST, Release

NEVER: Number = (1 << 30,)
Condition = Callable[[Choices], Any]
_FIELD = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class Refusal:
    """`said` names server arguments in brackets: they become the flag and what it is set to.

    It stands from `since` on and before `until`, in the releases that have all of these arguments.
    """

    when: Condition
    said: str
    way: str | Callable[[Choices], str] | None = None
    since: Number = FIRST
    until: Number = NEVER

    def remedy(self, c: Choices) -> str | None:
        return self.way(c) if callable(self.way) else self.way

    def stands_in(self, release: Release) -> bool:
        known = arguments(release.version)
        return self.since <= release.number < self.until and all(
            one in known for one in arguments_in(self.said)
        )


def under(condition: Condition, rows: Iterable[Refusal], since: Number = FIRST) -> tuple[Refusal, ...]:
    """The same rows where `condition` holds, too."""

    def both(row: Refusal) -> Refusal:
        return replace(row, when=lambda c: condition(c) and row.when(c), since=max(since, row.since))

    return tuple(both(row) for row in rows)


def apart(one: str, other: str, since: Number = FIRST, until: Number = NEVER) -> Refusal:
    return Refusal(
        lambda c: getattr(c, one) and getattr(c, other),
        f"[{one}] does not go with [{other}]", "leave one of the two out", since, until,
    )  # fmt: skip


def needs(one: str, other: str, since: Number = FIRST, until: Number = NEVER) -> Refusal:
    return Refusal(
        lambda c: getattr(c, one) and not getattr(c, other), f"[{one}] needs [{other}]", None, since, until
    )


def at_least(least: float, name: str, since: Number = FIRST, until: Number = NEVER) -> Refusal:
    """Unset is no number."""
    return Refusal(
        lambda c: getattr(c, name) is not None and getattr(c, name) < least,
        f"[{name}]: it must be at least {least}", None, since, until,
    )  # fmt: skip


def above(limit: float, name: str, since: Number = FIRST, until: Number = NEVER) -> Refusal:
    return Refusal(
        lambda c: getattr(c, name) is not None and getattr(c, name) <= limit,
        f"[{name}]: it must be above {limit}", None, since, until,
    )  # fmt: skip


def arguments_in(text: str) -> tuple[str, ...]:
    """Those that are named in brackets: to change one of them may be the way out."""
    return tuple(dict.fromkeys(found[1] for found in _FIELD.finditer(text)))


def told(text: str, c: Choices) -> str:
    return _FIELD.sub(lambda found: _flag(found[1], getattr(c, found[1]), c.release), text)


def _flag(name: str, value: Any, release: Release) -> str:
    line = flags_of(min(release, NEWEST, key=lambda row: row.number).version)
    flag = line.by_field.get(name)
    spelled = flag.name if flag is not None else "--" + name.replace("_", "-")
    if value is None or isinstance(value, (bool, dict)) or value in ((), []):
        return spelled
    words = value if isinstance(value, (list, tuple)) else [value]
    return " ".join([spelled, *map(str, words)])
