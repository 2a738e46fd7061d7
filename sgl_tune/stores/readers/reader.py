"""What every reader can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Item, Setting
from sgl_tune.stores.walk import Listing


class Reader(Protocol):
    @property
    def store(self) -> str: ...

    def is_one(self, folder: Folder, found: Listing) -> bool:
        """Whether a folder of unknown name is such a store."""
        ...

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]: ...
