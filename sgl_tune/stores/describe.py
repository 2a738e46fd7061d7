"""Describe stores in words and as JSON."""

import pwd
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.errors import UsageError
from sgl_tune.stores.find import Stored, stores_below
from sgl_tune.stores.item import Item, Size
from sgl_tune.stores.places import stores_of_this_user
from sgl_tune.stores.rows import BY_ID
from sgl_tune.units import count, human_age, human_bytes

COLUMNS = columns_of("STORE", ">ITEMS", ">FILES", ">SIZE", ">AGE", "BY", "MADE FOR", "MOVED", "WHERE/")
ITEM_COLUMNS = columns_of("ITEM/", ">FILES", ">SIZE", ">AGE", "MADE FOR", "STATE")
_MOVED = {"as it is": "found", "mended": "relocate", "never": "never"}


@dataclass
class Summary:
    """One store, counted in a pass over its items. `kept`: the items, if they are to be shown."""

    stored: Stored
    size: Size = field(default_factory=Size)
    items: int = 0
    incomplete: int = 0
    versions: dict[str, set[str]] = field(default_factory=dict)
    archs: set[str] = field(default_factory=set)
    pythons: set[str] = field(default_factory=set)
    owners: set[int] = field(default_factory=set)
    kept: list[Item] = field(default_factory=list)
    problem: str | None = None

    def add(self, item: Item, keep: bool) -> None:
        self.items += 1
        self.size = self.size.plus(item.size)
        self.incomplete += not item.is_complete
        for name, version in item.versions.items():
            self.versions.setdefault(name, set()).add(version)
        if item.arch:
            self.archs.add(item.arch)
        if item.python:
            self.pythons.add(item.python)
        if item.size.owner is not None:
            self.owners.add(item.size.owner)
        if keep:
            self.kept.append(item)

    def to_json(self, with_items: bool = False) -> dict[str, Any]:
        row = BY_ID[self.stored.store]
        return {
            "store": row.id,
            "title": row.title,
            "path": str(self.stored.path),
            "items": self.items,
            "incomplete": self.incomplete,
            **_size_json(self.size),
            "owners": sorted(map(_owner, self.owners)),
            "versions": {name: sorted(found) for name, found in sorted(self.versions.items())},
            "archs": sorted(self.archs),
            "pythons": sorted(self.pythons),
            "executable": row.executable,
            "ships": row.ships,
            "moves": row.moves,
            "problem": self.problem,
            "entries": [item_json(item) for item in self.kept] if with_items else None,
        }


def summarise(stored: Iterable[Stored], keep: bool) -> list[Summary]:
    return [_summary(one, keep) for one in stored]


def _summary(stored: Stored, keep: bool) -> Summary:
    found = Summary(stored)
    try:
        for item in stored.items():
            found.add(item, keep)
    except OSError as error:
        found.problem = f"it cannot be looked into ({error.strerror})"
    return found


def item_json(item: Item) -> dict[str, Any]:
    return {
        **{name: getattr(item, name) for name in ("store", "name", "arch", "python")},
        "path": str(item.path),
        **_size_json(item.size),
        "owner": None if item.size.owner is None else _owner(item.size.owner),
        "versions": dict(item.versions),
        "complete": item.is_complete,
        "problem": _state(item) or None,
        "note": item.note or None,
        "odd": list(item.size.odd),
    }


def _size_json(size: Size) -> dict[str, Any]:
    age = max(0.0, time.time() - size.modified) if size.files and size.modified else None
    return {"files": size.files, "bytes": size.bytes, "age_seconds": age}


def row(summary: Summary) -> tuple[object, ...]:
    return (
        summary.stored.store,
        f"{summary.items:,}",
        f"{summary.size.files:,}",
        human_bytes(summary.size.bytes),
        _age(summary.size),
        ", ".join(sorted(map(_owner, summary.owners))) or "-",
        _made_for(
            [f"{name} {one}" for name, found in sorted(summary.versions.items()) for one in sorted(found)],
            summary.archs,
            summary.pythons,
        ),
        _MOVED[BY_ID[summary.stored.store].moves],
        summary.stored.path,
    )


def item_row(item: Item) -> tuple[object, ...]:
    versions = [f"{name} {version}" for name, version in sorted(item.versions.items())]
    made_for = _made_for(versions, filter(None, [item.arch]), filter(None, [item.python]))
    state = _state(item) or item.note or "complete"
    return (item.name, item.size.files, human_bytes(item.size.bytes), _age(item.size), made_for, state)


def remarks(summary: Summary) -> list[str]:
    said = []
    if summary.problem:
        said.append(f"{summary.stored.path}: {summary.problem}")
    if summary.incomplete:
        what = count(summary.incomplete, "item")
        said.append(f"{summary.stored.path}: {what} that no start can use; `sgl-tune verify` says why")
    return said


def _state(item: Item) -> str:
    said = [fault.message for fault in item.faults]
    if item.size.odd:
        said.append(f"no file: {', '.join(item.size.odd)}")
    return "; ".join(said)


def _made_for(versions: Sequence[str], archs: Iterable[str], pythons: Iterable[str]) -> str:
    return ", ".join([*versions, *sorted(archs), *(f"Python {one}" for one in sorted(pythons))]) or "-"


def _age(size: Size) -> str:
    is_known = size.files and size.modified
    return human_age(max(0.0, time.time() - size.modified)) if is_known else "-"


@cache
def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def stores_meant(
    out: Output, target: str | None, only: str | None, cache_dir: Path | None
) -> tuple[list[Stored], str]:
    """Return the stores below a named folder, else those where a server here would look; and that place in
    words."""
    folder = Path(target) if target else cache_dir
    wanted = None if only == "all" else only
    if folder is None:
        return stores_of_this_user(wanted), "the places where a server of this user would look"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", "stores are folders; --store goes without a key")
    return stores_below(out, folder, wanted), str(folder)


def show_stores(out: Output, target: str | None, only: str, cache_dir: Path | None) -> None:
    """Print the items of one store, or one line for each of all stores."""
    found, where = stores_meant(out, target, only, cache_dir)
    summaries = summarise(found, keep=only != "all")
    out.result(
        {"caches": [], "stores": [one.to_json(with_items=only != "all") for one in summaries]},
        human=lambda: _show(out, summaries, where, only),
        quiet=(str(summary.stored.path) for summary in summaries),
    )


def show_summaries(out: Output, summaries: Sequence[Summary]) -> None:
    out.table(COLUMNS, map(row, summaries))
    for remark in (remark for summary in summaries for remark in remarks(summary)):
        out.line(f"! {remark}", style="yellow")
    files, size = sum(s.size.files for s in summaries), sum(s.size.bytes for s in summaries)
    out.line(f"{count(len(summaries), 'store')}, {count(files, 'file')}, {human_bytes(size)}")


def _show(out: Output, summaries: Sequence[Summary], where: str, only: str) -> None:
    if not summaries:
        what = "No stores" if only == "all" else f"No store of {only}"
        out.line(f"{what} in {where}.")
        return
    for summary in summaries if only != "all" else ():
        out.line(str(summary.stored.path), style="bold")
        out.table(ITEM_COLUMNS, map(item_row, summary.kept))
        if len(summary.kept) < summary.items:
            out.line(f"{summary.items - len(summary.kept)} more")
        out.line()
    show_summaries(out, summaries)
