"""Remove caches under the writers' lock, and never anything outside the cache's own folder."""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.cache.folder import Folder, LeadsOut, entered
from sgl_tune.cache.layouts.cache import LOCK, Cache, is_unfinished
from sgl_tune.cache.lock import FolderBusy
from sgl_tune.cache.prune import WRITING_SECONDS, Removal
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.transaction import Elsewhere, FolderGone, explained, locked, publish
from sgl_tune.errors import WorkFailed

_LOCK_SECONDS = 2.0
_BELOW = ("runs", "entries")
_NOT_THERE = (FileNotFoundError, NotADirectoryError, LeadsOut)


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a removal. `skipped`: why it was left alone. `failed`: it could not be removed."""

    files: int = 0
    bytes: int = 0
    skipped: str | None = None
    failed: bool = False
    notes: tuple[str, ...] = ()


def settle(caches: Iterable[Cache], root: Path) -> list[str]:
    """Finish or discard what killed writers left; return what was done."""
    done: list[str] = []
    for cache in caches:
        if any(is_unfinished(path.name) for path in cache.leftovers):
            try:
                with locked(cache.path, _LOCK_SECONDS, create=False, root=root) as (_, notes):
                    done += notes
            except (FolderBusy, FolderGone):
                pass
            except WorkFailed as error:
                done.append(f"left unsettled: {error.message}")
    return done


def remove(removal: Removal, root: Path) -> Removed:
    place = removal.cache.path
    try:
        with locked(place, _LOCK_SECONDS, create=False, root=root) as (folder, notes):
            objection = _objection(removal, folder)
            if objection:
                return Removed(skipped=objection)
            with explained(place):
                return Removed(_remove(removal, folder), removal.bytes, notes=tuple(notes))
    except FolderBusy as error:
        return Removed(skipped=error.message)
    except FolderGone:
        return Removed(skipped="somebody else removed it")
    except Elsewhere:
        return Removed(skipped="leads out of the cache")
    except WorkFailed as error:
        return Removed(skipped=error.message, failed=True)


def _objection(removal: Removal, folder: Folder) -> str | None:
    """Return why a cache must stay now: a server, which takes no lock, may have written since the plan."""
    if not removal.whole:
        return None
    names = {str(path.relative_to(folder.path)): seen for path, seen in removal.seen.items()}
    if any(folder.signature(name) not in (None, seen) for name, seen in names.items()):
        return "written since"
    ranks = filter(RankName.parse, folder.names())
    if new := next((name for name in ranks if folder.path / name not in removal.seen), None):
        return f"{new} is a folder, or was written since"
    leftovers = (path for path in removal.cache.leftovers if not is_unfinished(path.name))
    there = filter(None, (folder.status(str(path.relative_to(folder.path))) for path in leftovers))
    if any(time.time() - status.st_mtime < WRITING_SECONDS for status in there):
        return "a server may be writing to it"
    return None


def _remove(removal: Removal, folder: Folder) -> int:
    """Remove the files; return their number. The lock goes last, because it keeps others out."""
    count = sum(_remove_below(removal, folder, below) for below in _BELOW)
    there = _as_seen(removal, folder, folder.path)
    publish(folder, {}, remove=there)
    if removal.whole:
        _remove_if_empty(folder)
    return count + len(there)


def _as_seen(removal: Removal, opened: Folder, place: Path) -> list[str]:
    """Return the names in an opened folder that nobody has written since they were chosen."""
    seen = removal.seen.items()
    return [path.name for path, sign in seen if path.parent == place and opened.signature(path.name) == sign]


def _remove_below(removal: Removal, folder: Folder, below: str) -> int:
    there: list[str] = []
    with contextlib.suppress(*_NOT_THERE), entered(folder, below) as opened:
        there = _as_seen(removal, opened, folder.path / below)
        for name in there:
            opened.unlink(name)
        folder.remove_folder(below)
    return len(there)


def forget(place: Path, root: Path) -> None:
    """Remove a folder that was made for files which were never written, and empty folders above it, unless
    another process holds it or put something in it."""
    with contextlib.suppress(WorkFailed), locked(place, 0.0, create=False, root=root) as (folder, _):
        _remove_if_empty(folder)


def _remove_if_empty(folder: Folder) -> None:
    """Remove the folder if it is empty, and then the empty folders above, up to the one that a user named."""
    if set(folder.names()) - {LOCK}:
        return
    folder.unlink(LOCK)
    if folder.parent is None:
        with contextlib.suppress(OSError):
            folder.path.rmdir()
    while folder.parent and folder.parent.remove_folder(folder.path.name):
        folder = folder.parent
