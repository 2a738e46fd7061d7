"""The host code of FlashInfer's modules that sgl-tune keeps:
<version>/<architecture>/<module>/<sha256>.so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.elf import is_whole
from sgl_tune.stores.item import Fault, Item, Setting, unread
from sgl_tune.stores.walk import Listing, entered, listing

_HALF = re.compile(r"[0-9a-f]{64}\.so")
_FOLDERS = (re.compile(r"\d+\.\d+\.\d+[\w.+]*"), re.compile(r"\d+"), re.compile(r"\w+"))
_CUT = Fault("half-written", "it is cut off: the module's host code is not run")


class HostHalves:
    store = "halves"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        there = (item for item in self._below(folder, found, ()) if _HALF.fullmatch(item.path.name))
        return next(there, None) is not None

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return self._below(folder, listing(folder), ())

    def _below(self, folder: Folder, found: Listing, above: Sequence[str]) -> Iterator[Item]:
        if len(above) == len(_FOLDERS):
            yield from self._halves(folder, found, above)
            return
        for name in filter(_FOLDERS[len(above)].fullmatch, found.folders):
            try:
                with entered(folder, name) as below:
                    yield from self._below(below, listing(below), (*above, name))
            except OSError as error:
                yield unread(self.store, "/".join((*above, name)), folder.path / name, error)

    def _halves(self, folder: Folder, found: Listing, above: Sequence[str]) -> Iterator[Item]:
        version, arch, _ = above
        for file in sorted(filter(_HALF.fullmatch, found.files)):
            size = Listing({file: found.files[file]}, [], []).size
            faults = () if is_whole(folder, file, size.bytes) else (_CUT,)
            where = "/".join((*above, file))
            versions = {"flashinfer": version}
            yield Item(self.store, where, folder.path / file, size, versions, f"sm{arch}", faults=faults)
