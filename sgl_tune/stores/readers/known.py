"""The readers of all known stores, and the protocol of a reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.item import Item, Setting
from sgl_tune.stores.readers.cubins import FlashInferCubins
from sgl_tune.stores.readers.cute_dsl import CuteDsl
from sgl_tune.stores.readers.deep_gemm import DeepGemm
from sgl_tune.stores.readers.flashinfer_jit import FlashInferModules
from sgl_tune.stores.readers.halves import HostHalves
from sgl_tune.stores.readers.inductor import Inductor
from sgl_tune.stores.readers.moe_configs import MoeConfigs
from sgl_tune.stores.readers.tilelang import TileLang
from sgl_tune.stores.readers.triton import Triton
from sgl_tune.stores.readers.tvm_ffi import TvmFfi
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


class Reader(Protocol):
    @property
    def store(self) -> str: ...

    def is_one(self, folder: Folder, found: Listing) -> bool:
        """Whether a folder of unknown name is a store of this reader's kind."""
        ...

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]: ...


READERS: tuple[Reader, ...] = (
    FlashInferModules(),
    FlashInferCubins(),
    HostHalves(),
    Triton(),
    Inductor(),
    DeepGemm(),
    CuteDsl(),
    TileLang(),
    TvmFfi(),
    MoeConfigs(),
    Driver(),
)
BY_STORE = {reader.store: reader for reader in READERS}
