"""CuTe DSL's objects as SGLang keeps them: <fingerprint>/[<name>/]<sha256>.o, each with a .lock file. The
fingerprint covers Python, the host, the DSL, CUDA, the architecture and the sources, but no path. To look
up an object, a start opens its lock file, and creates it if it is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Fault, Item, Listing, Setting, each, listing

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
OBJECT = re.compile(r"([0-9a-f]{64})\.o")
_DEEPEST = 3


class CuteDsl:
    store = "cute-dsl"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        if folder.path.name in ("cute_aot", "flash_attention_cute_dsl_cache"):
            return True
        names = filter(_FINGERPRINT.fullmatch, found.folders)
        items = each(folder, names, self.store, partial(self._below, Setting("", looks=False), 1))
        return any(OBJECT.fullmatch(item.path.name) for item in items)

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        names = filter(_FINGERPRINT.fullmatch, listing(folder).folders)
        return each(folder, names, self.store, partial(self._below, setting, _DEEPEST))

    def _below(self, setting: Setting, depth: int, folder: Folder, path: str) -> Iterator[Item]:
        found = listing(folder)
        for file in sorted(filter(OBJECT.fullmatch, found.files)):
            yield self._object(folder, file, f"{path}/{file}", found, setting)
        below = partial(self._below, setting, depth - 1)
        yield from each(folder, found.folders if depth else (), self.store, below, f"{path}/")

    def _object(self, folder: Folder, file: str, name: str, found: Listing, setting: Setting) -> Item:
        size = found.only(file).size
        faults = []
        if not size.bytes and not setting.writable:
            says = "it is empty, and cannot be removed in a read-only place"
            faults.append(Fault("kills", f"{says}: a start that looks it up dies of it"))
        elif not size.bytes:
            faults.append(Fault("half-written", "it is empty: a start removes it and compiles again"))
        if not setting.writable and f"{file[:-2]}.lock" not in found.files:
            says = "its lock file is missing, and this place is read-only"
            faults.append(Fault("kills", f"{says}: a start that looks it up dies of it"))
        return Item(self.store, name, folder.path / file, size, faults=tuple(faults))
