"""Remove caches with the lock that writers take, and never anything beyond the cache's own folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.cache.layouts import LOCK, Cache, is_unfinished
from sgl_tune.cache.prune import WRITING_SECONDS, Removal, last_used
from sgl_tune.cache.transaction import (
    FolderBusy,
    FolderGone,
    explained,
    locked,
    publish,
)
from sgl_tune.errors import WorkFailed

_LOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Removed:
    """`skipped` says why it was left alone; `failed`, that it could not be removed."""

    files: int = 0
    bytes: int = 0
    skipped: str | None = None
    failed: bool = False


def settle(caches: Iterable[Cache], root: Path) -> list[str]:
    """Finish or discard what killed writers left; says what was done."""
    done = []
    for cache in caches:
        if any(is_unfinished(path.name) for path in cache.leftovers) and _is_inside(cache.path, root):
            with (
                contextlib.suppress(FolderBusy, FolderGone),
                locked(cache.path, _LOCK_SECONDS, create=False) as settled,
            ):
                done += settled
    return done


def remove(removal: Removal, root: Path) -> Removed:
    folder = removal.cache.path
    if not _is_inside(folder, root):
        return Removed(skipped="leads out of the cache")
    try:
        with locked(folder, _LOCK_SECONDS, create=False):
            objection = _objection(removal)
            if objection:
                return Removed(skipped=objection)
            with explained(folder):
                return _remove(removal, root)
    except FolderBusy as error:
        return Removed(skipped=error.message)
    except FolderGone:
        return Removed(skipped="somebody else removed it")
    except WorkFailed as error:
        return Removed(skipped=error.message, failed=True)


def _is_inside(folder: Path, root: Path) -> bool:
    return folder.resolve().is_relative_to(root.resolve())


def _objection(removal: Removal) -> str | None:
    """Time has passed since the plan; the lock keeps out our own writers, but not a server."""
    if not removal.whole:
        return None
    if removal.files and last_used(removal.cache, removal.files) > removal.last_used:
        return "written since"
    writing = [path for path in removal.cache.leftovers if not is_unfinished(path.name)]
    if any(_exists_since(path) < WRITING_SECONDS for path in writing):
        return "a server may be writing to it"
    return None


def _exists_since(path: Path) -> float:
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return float("inf")


def _remove(removal: Removal, root: Path) -> Removed:
    folder = removal.cache.path
    files = [path for path in removal.files if path.exists() or path.is_symlink()]
    for path in files:
        if path.parent != folder:
            path.unlink(missing_ok=True)
    publish(folder, {}, remove=[path.name for path in files if path.parent == folder])
    for name in ("runs", "entries"):
        _remove_empty(folder / name)
    if removal.whole:
        _remove_folder(folder, root)
    return Removed(len(files), removal.bytes)


def _remove_folder(folder: Path, root: Path) -> None:
    """With its lock, unless it holds something of somebody else's; then the folders above, once empty."""
    if {path.name for path in folder.iterdir()} - {LOCK}:
        return
    (folder / LOCK).unlink(missing_ok=True)
    emptied = folder
    while _remove_empty(emptied) and emptied != root and emptied.parent != root:
        emptied = emptied.parent


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:  # not empty, gone already, or a link
        return False
    return True
