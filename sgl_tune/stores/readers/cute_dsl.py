"""CuTe DSL's objects as SGLang keeps them: <fingerprint>/[<name>/]<sha256>.o, each with a .lock file. The
fingerprint covers Python, the host, the DSL, CUDA, the architecture and the sources, but no path. To look
up an object, a start opens its lock file, and creates it if it is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Fault, Item, Setting, unread
from sgl_tune.stores.walk import Listing, entered, listed, listing

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
OBJECT = re.compile(r"([0-9a-f]{64})\.o")
_DEEPEST = 3


class CuteDsl:
    store = "cute-dsl"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return folder.path.name in ("cute_aot", "flash_attention_cute_dsl_cache") or any(
            _holds_objects(folder, name) for name in found.folders if _FINGERPRINT.fullmatch(name)
        )

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        for name in listing(folder).folders:
            if _FINGERPRINT.fullmatch(name):
                yield from self._below(folder, name, name, setting, _DEEPEST)

    def _below(self, parent: Folder, name: str, path: str, setting: Setting, depth: int) -> Iterator[Item]:
        try:
            with entered(parent, name) as folder:
                found = listing(folder)
                for file in sorted(found.files):
                    if OBJECT.fullmatch(file):
                        yield self._object(folder, file, f"{path}/{file}", found, setting)
                for below in found.folders if depth else ():
                    yield from self._below(folder, below, f"{path}/{below}", setting, depth - 1)
        except OSError as error:
            yield unread(self.store, path, parent.path / name, error)

    def _object(self, folder: Folder, file: str, name: str, found: Listing, setting: Setting) -> Item:
        size = Listing({file: found.files[file]}, [], []).size
        faults = []
        if not size.bytes and not setting.writable:
            says = "it is empty, and cannot be removed in a read-only place"
            faults.append(Fault("kills", f"{says}: a start that looks it up dies of it"))
        elif not size.bytes:
            faults.append(Fault("half-written", "it is empty: a start removes it and compiles again"))
        if not setting.writable and f"{file[:-2]}.lock" not in found.files:
            says = (
                "its lock file is missing, and this place is read-only: a start that looks it up dies of it"
            )
            faults.append(Fault("kills", says))
        return Item(self.store, name, folder.path / file, size, faults=tuple(faults))


def _holds_objects(folder: Folder, name: str) -> bool:
    try:
        with entered(folder, name) as below:
            found = listing(below)
            inner = [file for one in found.folders[:4] for file in listed(below, one).files]
            return any(OBJECT.fullmatch(file) for file in (*found.files, *inner))
    except OSError:
        return False
