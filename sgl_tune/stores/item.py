"""One entry of a store: what its library looks up as a unit, and what that lookup would do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from sgl_tune.stores.sources import Sources

# What a start does about an entry that is not as its library wrote it.
Kind = Literal["half-written", "moved", "stale", "kills", "unread"]


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

    def plus(self, other: Size) -> Size:
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
