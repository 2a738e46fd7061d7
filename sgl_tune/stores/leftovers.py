"""Find what killed commands left below a root: half-removed items, half-unpacked bundles, half-copied
files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Folder, entered, open_folder
from sgl_tune.cache.layouts.cache import is_private, is_temporary
from sgl_tune.locks import take_lock
from sgl_tune.stores.item import DEEPEST_FOLDER, Budget, OnError, listing, size_of

GOING = ".sgl-tune-removed-"
_STAGING = re.compile(r"\.sgl-tune-[0-9a-f]{16}")
_MOST_FOLDERS = 500_000
_TOO_MANY = "more folders than are looked into for what killed commands left: name one of the stores"
_JUST_MADE_SECONDS, _COPYING_SECONDS, _UNLOCKED_SECONDS = 60.0, 3600.0, 86400.0
_LOCKED_APART = "autotune"  # its writers settle their leftovers under their own locks


class Leftover(NamedTuple):
    path: Path
    bytes: int


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
            yield Leftover(folder.path / name, status.st_size)
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
        yield Leftover(parent.path / name, size)


def _is_nobodys(folder: Folder) -> bool:
    """Whether the command that made the folder has ended. A running unpack holds a lock on it; without
    locks, a day without a change counts as ended."""
    status = os.fstat(folder.descriptor)
    age = time.time() - status.st_mtime
    if status.st_uid != os.geteuid() or age < _JUST_MADE_SECONDS:
        return False
    taken = take_lock(folder.descriptor)
    return age > _UNLOCKED_SECONDS if taken is None else taken
