"""The host code of FlashInfer's modules that sgl-tune keeps:
<version>/<architecture>/<module>/<sha256>.so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.elf import is_whole
from sgl_tune.stores.item import Fault, Item, Listing, Setting, each, listing

_HALF = re.compile(r"[0-9a-f]{64}\.so")
_FOLDERS = (re.compile(r"\d+\.\d+\.\d+[\w.+]*"), re.compile(r"\d+"), re.compile(r"\w+"))
_CUT = Fault("half-written", "it is cut off: the module's host code is not run")


class HostHalves:
    store = "halves"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return any(_HALF.fullmatch(item.path.name) for item in self._below(folder, ""))

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return self._below(folder, "")

    def _below(self, folder: Folder, path: str) -> Iterator[Item]:
        parts, found = path.split("/") if path else [], listing(folder)
        if len(parts) < len(_FOLDERS):
            names = filter(_FOLDERS[len(parts)].fullmatch, found.folders)
            yield from each(folder, names, self.store, self._below, f"{path}/" if path else "")
            return
        version, arch, _ = parts
        for file in sorted(filter(_HALF.fullmatch, found.files)):
            size = found.only(file).size
            faults = () if is_whole(folder, file, size.bytes) else (_CUT,)
            where, versions = f"{path}/{file}", {"flashinfer": version}
            yield Item(self.store, where, folder.path / file, size, versions, f"sm{arch}", faults=faults)
