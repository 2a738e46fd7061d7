"""FlashInfer's cubins: downloaded once, and compared with the checksums that FlashInfer knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.item import DEEPEST_FOLDER, Fault, Item, Listing, Setting, listing

NAME = "cubins"
_KINDS = (".cubin", ".so", ".h", ".txt", ".json")


class FlashInferCubins:
    store = "flashinfer-cubins"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return folder.path.name == NAME and "flashinfer" in str(folder.path.parent)

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return self._below(folder, "", DEEPEST_FOLDER)

    def _below(self, folder: Folder, name: str, depth: int) -> Iterator[Item]:
        """Yield the items. A folder that contains files is one item: an artifact with its headers and
        checksums."""
        found = listing(folder)
        if found.files:
            empty = sorted(file for file in found.files if not found.files[file].st_size)
            cut = [file for file in empty if file.endswith(_KINDS)]
            faults = (Fault("half-written", f"{cut[0]} is empty: it is downloaded again"),) if cut else ()
            yield Item(self.store, name or ".", folder.path, found.size, faults=faults)
        for below in found.folders if depth else ():
            with suppress(OSError), entered(folder, below) as inner:
                yield from self._below(inner, f"{name}/{below}" if name else below, depth - 1)
