"""The driver's compiled PTX: of this driver and this GPU, so it is counted and left where it is."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Item, Setting
from sgl_tune.stores.walk import Listing, size_of

_INDEX = "index"


class Driver:
    store = "driver"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return folder.path.name in ("ComputeCache", "nv") and (_INDEX in found.files or bool(found.folders))

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        size = size_of(folder)
        if size.files:
            yield Item(self.store, ".", folder.path, size)
