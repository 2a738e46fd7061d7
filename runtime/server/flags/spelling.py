"""How a release spells an argument on its command line: what is advised must be taken by its own grammar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runtime.server.flags.table import CommandLine, Flag, flags_of
from runtime.server.releases import NEWEST, Release

_RENAMED = "{}_decode"  # graph sizes, since they are told phase by phase


def line_of(release: Release) -> CommandLine:
    """A release that is newer than those known speaks as the newest of them."""
    return flags_of(min(release, NEWEST, key=lambda row: row.number).version)


def flag_of(release: Release, argument: str) -> Flag | None:
    known = line_of(release).by_field
    return known.get(argument) or known.get(_RENAMED.format(argument))


def spelled(release: Release, argument: str, value: Any) -> str:
    """`--tp-size 8`, or the flag alone where it takes no value. Of several names it is the argument's own."""
    flag, own = flag_of(release, argument), f"--{argument.replace('_', '-')}"
    name = own if flag is None or own in flag.names else flag.name
    return name if value is True else f"{name} {value}"


def names_of(release: Release, arguments: Iterable[str]) -> frozenset[str]:
    """Every name that any of them has."""
    flags = (flag_of(release, argument) for argument in arguments)
    return frozenset(name for flag in flags if flag is not None for name in flag.names)


def name_of(release: Release, argument: str) -> str:
    return spelled(release, argument, True)
