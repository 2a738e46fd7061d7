"""TileLang: <version>/<platform>/kernels/<sha256>/, one kernel each (older releases lack the folders
above). The key covers the function, the target, the flags, TileLang's version and its libraries, but no
path. An entry without its library or its parameters is compiled again. Newer entries are compared with a
manifest; those that differ are removed and compiled again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Fault, Item, Listing, Setting, below_size, each, listed, listing, read_json

_KEY = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"\d+\.\d+[\w.+]*")
_LIBRARIES = ("kernel_lib.so", "kernel.cubin", "kernel.py", "executable.so")
_PARAMETERS = ("params.json", "params.pkl")
_STAGING = ".staging"


class TileLang:
    store = "tilelang"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        if folder.path.name == "tilelang" or str(folder.path).endswith("/.tilelang/cache"):
            return bool(found.folders)
        keys = [name for name in found.folders if _KEY.fullmatch(name)]
        return any(set(_PARAMETERS) & set(listed(folder, name).files) for name in keys[:8])

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return each(folder, listing(folder).folders, self.store, partial(self._below, 3))

    def _below(self, depth: int, folder: Folder, path: str) -> Iterator[Item]:
        found, (*above, name) = listing(folder), path.split("/")
        if _KEY.fullmatch(name):
            version = next(filter(_VERSION.fullmatch, above), None)
            versions = {"tilelang": version.replace("_", "+", 1)} if version else {}
            faults, size = tuple(_faults(folder, found)), below_size(folder, found)
            yield Item(self.store, path, folder.path, size, versions, faults=faults)
        elif depth and name != _STAGING:
            yield from each(folder, found.folders, self.store, partial(self._below, depth - 1), f"{path}/")


def _faults(folder: Folder, found: Listing) -> Iterator[Fault]:
    if not set(_LIBRARIES) & set(found.files) or not set(_PARAMETERS) & set(found.files):
        yield Fault("half-written", "its library or its parameters are missing: it is compiled again")
    elif any(not found.files[file].st_size for file in (*_LIBRARIES, *_PARAMETERS) if file in found.files):
        yield Fault("half-written", "a file of it is empty: it is compiled again")
    elif "manifest.json" in found.files and not _fits(folder, found):
        yield Fault("half-written", "its manifest does not fit: a start removes it and compiles again")


def _fits(folder: Folder, found: Listing) -> bool:
    """Whether the files' sizes match the manifest. TileLang itself compares hashes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        files: dict[str, Any] = dict(read_json(folder, "manifest.json")["files"])
        return bool(files) and all(found.files[name].st_size == told["size"] for name, told in files.items())
    return False
