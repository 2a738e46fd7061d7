"""One entry of a store: what its library looks up as a unit, and what that lookup would do; and how readers
read a store's folders: opened one below the other, never through a link, and to a limited depth."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.cache.layouts.cache import is_private
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.stores.sources import Sources

# What a start does about an entry that is not as its library wrote it.
Kind = Literal["half-written", "moved", "stale", "kills", "unread"]
DEEPEST_FOLDER = 12
_MOST_NAMED = 3
OnError = Callable[[OSError], None]


class Fault(NamedTuple):
    """A fault of an item. `still_there`: the file outside the store that it refers to exists today."""

    kind: Kind
    message: str
    still_there: bool = False


class Size(NamedTuple):
    files: int = 0
    bytes: int = 0
    modified: float = 0.0
    owner: int | None = None
    odd: tuple[str, ...] = ()  # links, pipes, devices, which are not opened
    closed: os.stat_result | None = None  # the status of a file that others may not read

    def plus(self, other: "Size") -> "Size":
        owner = self.owner if self.files else other.owner
        newest = max(self.modified, other.modified)
        odd = (*self.odd, *other.odd) if other.odd else self.odd
        closed = self.closed or other.closed
        return Size(self.files + other.files, self.bytes + other.bytes, newest, owner, odd, closed)


class Item(NamedTuple):
    """One entry of a store. `name`: its path below the store. `versions`, `arch`, `python`: what it was
    made for, by the layout or a small file beside it."""

    store: str
    name: str
    path: Path
    size: Size
    versions: Mapping[str, str] = MappingProxyType({})
    arch: str | None = None
    python: str | None = None
    faults: tuple[Fault, ...] = ()
    note: str = ""  # how it was tuned

    @property
    def is_complete(self) -> bool:
        return not any(fault.kind in ("half-written", "unread", "kills") for fault in self.faults)


def unread(store: str, name: str, path: Path, error: OSError) -> Item:
    fault = Fault("unread", f"it cannot be looked into ({error.strerror})")
    return Item(store, name, path, Size(), faults=(fault,))


class Setting(NamedTuple):
    """How a server sees a store. `place`: its path there. `writable`: the server may write there. `looks`:
    read the items, not only names and sizes."""

    place: str
    writable: bool = True
    looks: bool = True
    is_here: bool = True  # files outside the store can be checked
    offered: frozenset[str] = frozenset()  # modules that a package in the root offers
    sources: Sources | None = None  # the sources of SGLang's kernels here


def setting_here(path: Path, looks: bool = True) -> Setting:
    return Setting(str(path.absolute()), os.access(path, os.W_OK | os.X_OK), looks)


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

    def only(self, *names: str) -> "Listing":
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
