"""Read a store's folders: opened one below the other, never through a link, and to a limited depth."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.cache.layouts.cache import is_private
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.stores.item import Item, Size, unread

DEEPEST_FOLDER = 12
_MOST_NAMED = 3


OnError = Callable[[OSError], None]


class Budget:
    """Limits how many folders are searched, since a user may name a whole disk."""

    def __init__(self, folders: int, says: str, on_error: OnError) -> None:
        self._left, self._says, self._on_error = folders, says, on_error

    def takes_one(self, folder: Folder) -> bool:
        self._left -= 1
        if self._left == -1:
            self._on_error(OSError(errno.EOVERFLOW, self._says, str(folder.path)))
        return self._left >= 0


class Listing(NamedTuple):
    files: dict[str, os.stat_result]
    folders: list[str]
    odd: list[str]

    def only(self, *names: str) -> Listing:
        """Return these files alone."""
        return Listing({name: self.files[name] for name in names}, [], [])

    @property
    def size(self) -> Size:
        """Return the size of the folder's own files, without subfolders."""
        if not self.files:
            return Size(odd=tuple(self.odd[:_MOST_NAMED]))
        total, written, closed = 0, 0.0, None
        for status in self.files.values():
            total += status.st_size
            written = max(written, status.st_mtime)
            if not status.st_mode & 0o004:
                closed = status
        owner = next(iter(self.files.values())).st_uid
        return Size(len(self.files), total, written, owner, tuple(self.odd[:_MOST_NAMED]), closed)


def listing(folder: Folder, private: bool = False) -> Listing:
    """Return the contents of one folder. `private`: with the private folders of sgl-tune's commands."""
    files: dict[str, os.stat_result] = {}
    folders: list[str] = []
    odd: list[str] = []
    with os.scandir(folder.descriptor) as entries:
        for entry in entries:
            name = entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if is_private(name) and not private else [name]
                elif entry.is_file(follow_symlinks=False):
                    files[name] = entry.stat(follow_symlinks=False)
                else:
                    odd.append(name)
            except OSError:  # removed meanwhile
                continue
    folders.sort()
    return Listing(files, folders, odd)


def each(
    folder: Folder,
    names: Iterable[str],
    store: str,
    read: Callable[[Folder, str], Iterator[Item]],
    above: str = "",
) -> Iterator[Item]:
    """Yield the items that `read` finds in each of these folders, given the opened folder and its path in
    the store. A folder that cannot be read is an item of its own. `above`: the path of `folder`."""
    for name in names:
        try:
            with entered(folder, name) as below:
                yield from read(below, f"{above}{name}")
        except OSError as error:
            yield unread(store, f"{above}{name}", folder.path / name, error)


def listed(folder: Folder, name: str) -> Listing:
    """Return the contents of a subfolder; empty if it cannot be opened."""
    try:
        with entered(folder, name) as below:
            return listing(below)
    except OSError:
        return Listing({}, [], [])


def size_of(folder: Folder, depth: int = DEEPEST_FOLDER) -> Size:
    """Return the size of a folder with everything below it."""
    found = listing(folder)
    return below_size(folder, found, depth)


def below_size(folder: Folder, found: Listing, depth: int = DEEPEST_FOLDER) -> Size:
    total = found.size
    for name in found.folders if depth else ():
        with contextlib.suppress(OSError), entered(folder, name) as below:
            total = total.plus(size_of(below, depth - 1))
    return total


def read_json(folder: Folder, name: str) -> Any:
    """Read a JSON file; raise ValueError if it is no JSON, OSError if it is no readable file."""
    _, raw = folder.read(name)
    if raw is None:
        raise ValueError("it is no regular file")
    try:
        content = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if isinstance(content, (dict, list)) and is_deeper(content, DEEPEST):
        raise ValueError("nested too deep")
    return content
