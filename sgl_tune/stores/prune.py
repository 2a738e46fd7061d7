"""Remove items of stores. Each is renamed before it is emptied, because half an item crashes DeepGEMM. What
killed commands left below a root is found and removed: half-removed items, half-unpacked bundles,
half-copied files."""

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runtime.flashinfer.versions import number
from sgl_tune.cache.folder import Folder, entered, open_folder
from sgl_tune.cache.layouts.cache import is_private, is_temporary
from sgl_tune.cache.prune import ago, newest_versions, until_it_fits
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.config_files.names import beside
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.locks import take_lock
from sgl_tune.stores.describe import stores_meant
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import DEEPEST_FOLDER, Budget, Item, OnError, listing, size_of
from sgl_tune.stores.rows import CONFIGS
from sgl_tune.units import count, human_bytes

_WRITING_SECONDS = 3600.0  # a younger item may still be compiled
_COLUMNS = columns_of("STORE", ">ITEMS", ">SIZE", "WHY", "WHERE/")
GOING = ".sgl-tune-removed-"
_STAGING = re.compile(r"\.sgl-tune-[0-9a-f]{16}")
_MOST_FOLDERS = 500_000
_TOO_MANY = "more folders than are looked into for what killed commands left: name one of the stores"
_JUST_MADE_SECONDS, _COPYING_SECONDS, _UNLOCKED_SECONDS = 60.0, 3600.0, 86400.0
_LOCKED_APART = "autotune"  # its writers settle their leftovers under their own locks


Leftover = tuple[Path, int]  # a path, and its bytes


def sweep(root: Path, dry_run: bool, on_error: OnError, deep: bool = True) -> list[Leftover]:
    """Remove what no running command holds. Unless `deep`, only in the root itself, where bundles are
    staged."""
    try:
        with open_folder(root, root) as folder:
            budget = Budget(_MOST_FOLDERS, _TOO_MANY, on_error)
            return list(_below(folder, DEEPEST_FOLDER if deep else 0, budget, dry_run))
    except OSError as error:
        on_error(error)
        return []


def empty(parent: Folder, name: str, depth: int = DEEPEST_FOLDER) -> None:
    """Remove a folder and everything in it that this user may remove."""
    with suppress(OSError), entered(parent, name) as folder:
        found = listing(folder, private=True)
        for file in (*found.files, *found.odd):
            folder.unlink(file)
        for below in found.folders if depth else ():
            empty(folder, below, depth - 1)
    parent.remove_folder(name)


def _below(folder: Folder, depth: int, budget: Budget, dry_run: bool) -> Iterator[Leftover]:
    if not budget.takes_one(folder):
        return
    found = listing(folder, private=True)
    for name, status in found.files.items():
        if is_temporary(name) and time.time() - status.st_mtime > _COPYING_SECONDS:
            yield folder.path / name, status.st_size
            if not dry_run:
                folder.unlink(name)
    for name in found.folders:
        if is_private(name):
            yield from _dead(folder, name, dry_run)
        elif depth and name != _LOCKED_APART:
            with suppress(OSError), entered(folder, name) as below:
                yield from _below(below, depth - 1, budget, dry_run)


def _dead(parent: Folder, name: str, dry_run: bool) -> Iterator[Leftover]:
    with suppress(OSError):
        with entered(parent, name) as folder:
            if not name.startswith(GOING) and not (_STAGING.fullmatch(name) and _is_nobodys(folder)):
                return
            size = size_of(folder).bytes
        if not dry_run:
            empty(parent, name)
        yield parent.path / name, size


def _is_nobodys(folder: Folder) -> bool:
    """Whether the command that made the folder has ended. A running unpack holds a lock on it; without
    locks, a day without a change counts as ended."""
    status = os.fstat(folder.descriptor)
    age = time.time() - status.st_mtime
    if status.st_uid != os.geteuid() or age < _JUST_MADE_SECONDS:
        return False
    taken = take_lock(folder.descriptor)
    return age > _UNLOCKED_SECONDS if taken is None else taken


@dataclass(frozen=True, slots=True)
class StoreRules:
    """What to remove. If several rules are given, an item must match all of them."""

    stale: bool = False
    older_than: float | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    arch: str | None = None
    max_size: int | None = None


class Chosen(NamedTuple):
    stored: Stored
    item: Item
    reason: str


def plan(found: Iterable[Stored], rules: StoreRules, now: float) -> list[Chosen]:
    chosen: list[Chosen] = []
    total = 0
    for stored in found:
        items = list(stored.items())
        total += sum(item.size.bytes for item in items)
        newest = newest_versions(pair for one in items if one.is_complete for pair in one.versions.items())
        for item in items:
            if reason := _reason(item, rules, newest, now):
                chosen.append(Chosen(stored, item, reason))
    if rules.max_size is None:
        return chosen
    excess = total - rules.max_size
    return until_it_fits(chosen, excess, lambda one: (one.item.size.modified, one.item.size.bytes))


def _reason(item: Item, rules: StoreRules, newest: dict[str, str], now: float) -> str | None:
    unused = now - item.size.modified
    if (
        (item.store == CONFIGS and not item.size.files)  # a link, a pipe or a folder, which nobody wrote here
        or any(item.versions.get(name) != version for name, version in rules.libraries.items())
        or (rules.arch and (item.arch is None or rules.arch not in (item.arch, item.arch.rstrip("af"))))
        or (rules.older_than is not None and unused < rules.older_than)
    ):
        return None
    return _stale(item, newest, now) if rules.stale else f"written {ago(unused)}"


def _stale(item: Item, newest: dict[str, str], now: float) -> str | None:
    for name, version in item.versions.items():
        if number(version) < number(newest.get(name, "")):
            return f"{name} {newest[name]} is here too"
    if not item.is_complete and now - item.size.modified >= _WRITING_SECONDS:
        return item.faults[0].message if item.faults else "no start can use it"
    return None


def remove(chosen: Chosen) -> str | None:
    """Remove an item. Return why it was left alone, or None if it is gone."""
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
                parent.unlink(beside(path.name)) if chosen.item.store == CONFIGS else None
    except OSError as error:
        return f"{error.strerror}"
    return None


def prune_stores(
    out: Output, folder: Path | None, only: str, rules: StoreRules, dry_run: bool, yes: bool
) -> None:
    if rules == StoreRules():
        raise UsageError("prune needs a rule", "--stale, --older-than 30d or --max-size 1GB")
    found, _ = stores_meant(out, str(folder) if folder else None, only, None)
    wanted = [stored for stored in found if stored.store != "driver" or only == "driver"]
    chosen = plan(wanted, rules, time.time())
    if chosen and not dry_run and not yes:
        _show(out, chosen)
        if not out.confirm(f"Remove {_total(chosen)}?"):
            out.note("Nothing was removed.")
            return
    with out.progress("removing", len(chosen)) as progress:
        results = []
        for one in chosen:
            results.append((one, None if dry_run else remove(one)))
            progress.advance()
    for root in [folder] if folder else dict.fromkeys(stored.path for stored in wanted):
        sweep_and_tell(out, root, dry_run)
    _report(out, results, dry_run, shown=dry_run or yes)


def sweep_and_tell(out: Output, root: Path, dry_run: bool, deep: bool = True) -> None:
    did = "would be" if dry_run else "were"
    left = sweep(root, dry_run, lambda error: out.warn(f"{error.filename}: {error.strerror}"), deep)
    for path, size in left:
        out.note(f"{path}: {human_bytes(size)} that a killed command left {did} removed")


def _report(out: Output, results: list[tuple[Chosen, str | None]], dry_run: bool, shown: bool) -> None:
    chosen = [one for one, why in results if why is None]
    gone = [
        Gone(item.store, str(item.path), "store", item.name, True, (), item.size.bytes, reason)
        for _, item, reason in chosen
    ]
    left = [(one.item.path, why) for one, why in results if why is not None]
    tell(out, gone, left, dry_run, _total(chosen), lambda: _show(out, chosen) if shown else None)
    for path, why in left[:3]:
        out.warn(f"{path}: left alone, {why}")
    failed = [why for _, why in left if why not in ("written since", "somebody else removed it")]
    if failed:
        raise WorkFailed(f"{count(len(failed), 'item')} could not be removed", "see the warnings above")


class Gone(NamedTuple):
    """An item that was, or would be, removed, as JSON shows it."""

    store: str
    path: str
    layout: str
    key: str | None
    whole: bool
    files: tuple[str, ...]
    bytes: int
    reason: str


def tell(
    out: Output,
    gone: Sequence[Gone],
    left: Sequence[tuple[Path, str]],
    dry_run: bool,
    total: str,
    show: Callable[[], None],
) -> None:
    """Print what was removed. `left`: the paths that were left alone, and why."""

    def human() -> None:
        if gone:
            show()
        verb = "Would remove" if dry_run else "Removed"
        nothing = "Nothing was removed." if left else "Nothing to remove."
        out.line(f"{verb} {total}." if gone else nothing)

    skipped = [{"path": str(path), "reason": why} for path, why in left]
    data = {"dry_run": dry_run, "removed": [one._asdict() for one in gone], "skipped": skipped}
    out.result(data, human, quiet=(one.path for one in gone))


def _total(chosen: Sequence[Chosen]) -> str:
    return f"{count(len(chosen), 'item')}, {human_bytes(sum(one.item.size.bytes for one in chosen))}"


def _show(out: Output, chosen: Sequence[Chosen]) -> None:
    """Print one line per store and reason, because there may be thousands of items."""
    items: Counter[tuple[str, str, Path]] = Counter()
    sizes: Counter[tuple[str, str, Path]] = Counter()
    for one in chosen:
        key = (one.item.store, one.reason, one.stored.path)
        items[key] += 1
        sizes[key] += one.item.size.bytes
    out.table(
        _COLUMNS,
        [(store, n, human_bytes(sizes[store, why, at]), why, at) for (store, why, at), n in items.items()],
    )
