"""Flags that were set and that another release does not know, spells otherwise or gives no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.server.asked import Asked, spellings
from runtime.server.flags import CommandLine, Flag
from runtime.server.releases import Release
from sgl_tune.explain.explain import command_line_of


def flag_changes(asked: Asked, before: Release, after: Release) -> Iterator[str]:
    here, there = command_line_of(before), command_line_of(after)
    for name in Asked.__dataclass_fields__:
        if asked.is_set(name):
            flag, other = _flag(here, name), _flag(there, name)
            said = _change(flag, other, there, after, getattr(asked, name))
            if said:
                yield said


def _flag(line: CommandLine, name: str) -> Flag | None:
    found = (line.by_field.get(spelled) for spelled in spellings(name))
    return next((flag for flag in found if flag), None)


def _change(
    flag: Flag | None, other: Flag | None, there: CommandLine, after: Release, value: Any
) -> str | None:
    if flag is None:
        return None  # not known to the release that the command is for: said already
    if other is None:
        return f"{flag.name}: SGLang {after.version} has no such flag"
    named = there.by_name.get(flag.name)
    if named is None:
        return f"{flag.name} is spelled {other.name} in SGLang {after.version}"
    if named.action == "refused":
        return f"{flag.name} is refused by SGLang {after.version}: {named.refusal or 'no longer taken'}"
    if named.action == "ignored":
        return f"{flag.name} has no effect in SGLang {after.version}"
    unknown = [one for one in _values(value) if named.choices and one not in named.choices]
    if unknown:
        return f"{flag.name} {unknown[0]}: SGLang {after.version} has no such choice"
    return None


def _values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
