"""Remove items of stores: which, why, and never half of one.

An item is renamed before it is emptied, so that a library finds it whole or not at all: DeepGEMM ends a
process over half a folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.server.version_number import number
from sgl_tune.cache.folder import open_folder
from sgl_tune.errors import UsageError
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import Item
from sgl_tune.stores.leftovers import GOING, empty
from sgl_tune.stores.walk import entered, size_of
from sgl_tune.units import human_age

_NOATIME: int = getattr(os, "ST_NOATIME", 0)
_WRITING_SECONDS = 3600.0  # what is younger may still be compiled


@dataclass(frozen=True, slots=True)
class StoreRules:
    """What may go; several rules together narrow the choice."""

    stale: bool = False
    older_than: float | None = None
    unused_for: float | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    arch: str | None = None
    max_size: int | None = None

    @property
    def choose_nothing(self) -> bool:
        return self == StoreRules()


class Chosen(NamedTuple):
    stored: Stored
    item: Item
    reason: str
    used: float


def plan(found: Iterable[Stored], rules: StoreRules, now: float) -> list[Chosen]:
    chosen: list[Chosen] = []
    total = 0
    for stored in found:
        if rules.unused_for is not None:
            _needs_times(stored)
        items = list(stored.items())
        total += sum(item.size.bytes for item in items)
        newest = _newest(items)
        for item in items:
            reason, used = _reason(item, rules, newest, now)
            if reason:
                chosen.append(Chosen(stored, item, reason, used))
    return chosen if rules.max_size is None else _until_it_fits(chosen, total - rules.max_size)


def _needs_times(stored: Stored) -> None:
    if os.statvfs(stored.path).f_flag & (_NOATIME | os.ST_RDONLY):
        raise UsageError(
            f"{stored.path}: its file system does not note when files are read",
            "--older-than goes by when they were written",
        )


def _reason(item: Item, rules: StoreRules, newest: dict[str, str], now: float) -> tuple[str | None, float]:
    used = item.size.modified
    if any(item.versions.get(name) != version for name, version in rules.libraries.items()):
        return None, used
    if rules.arch and (item.arch is None or rules.arch not in (item.arch, item.arch.rstrip("af"))):
        return None, used
    if rules.older_than is not None and now - used < rules.older_than:
        return None, used
    if rules.unused_for is not None:
        used = max(used, item.size.read)
        if now - used < rules.unused_for:
            return None, used
    if not rules.stale:
        verb = "written" if rules.unused_for is None else "last used"
        age = human_age(now - used)
        return f"{verb} {'just now' if age == 'now' else f'{age} ago'}", used
    return _stale(item, newest, now), used


def _stale(item: Item, newest: dict[str, str], now: float) -> str | None:
    for name, version in item.versions.items():
        if number(version) < number(newest.get(name, "")):
            return f"{name} {newest[name]} is here too"
    if not item.is_complete and now - item.size.modified >= _WRITING_SECONDS:
        return item.faults[0].message if item.faults else "no start can use it"
    return None


def _newest(items: Iterable[Item]) -> dict[str, str]:
    newest: dict[str, str] = {}
    for item in items:
        for name, version in item.versions.items():
            if item.is_complete and number(version) > number(newest.get(name, "")):
                newest[name] = version
    return newest


def _until_it_fits(chosen: list[Chosen], excess: int) -> list[Chosen]:
    kept = []
    for one in sorted(chosen, key=lambda one: one.used):
        if excess <= 0:
            break
        kept.append(one)
        excess -= one.item.size.bytes
    return kept


def remove(chosen: Chosen) -> str | None:
    """Why it was left alone; None where it went."""
    path = chosen.item.path
    try:
        with open_folder(path.parent, chosen.stored.root) as parent:
            status = parent.status(path.name)
            if status is None:
                return "somebody else removed it"
            if stat.S_ISDIR(status.st_mode):
                with entered(parent, path.name) as folder:
                    if size_of(folder).modified > chosen.item.size.modified:
                        return "written since"
                going = f"{GOING}{os.getpid()}-{os.urandom(4).hex()}"
                parent.rename(path.name, going)
                empty(parent, going)
            else:
                parent.unlink(path.name)
                parent.unlink(f"{path.stem}.lock") if path.suffix == ".o" else None
    except OSError as error:
        return f"{error.strerror}"
    return None
