"""DeepGEMM: cache/kernel.<name>.<digest>/ with kernel.cu and kernel.cubin. The digest covers the name, the
compiler's version, the flags and the source, which begins with a hash of all headers, but no path of the
cache. A folder that lacks one of the two files ends the process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.elf import arch_of
from sgl_tune.stores.item import Fault, Item, Setting
from sgl_tune.stores.walk import Listing, below_size, each, entered, listed, listing

_FOLDER = "cache"
_KERNEL = re.compile(r"kernel\.(.+)\.([0-9a-f]{8,64})")
_NEEDED = ("kernel.cu", "kernel.cubin")


class DeepGemm:
    store = "deep-gemm"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return _FOLDER in found.folders and any(
            _KERNEL.fullmatch(name) for name in listed(folder, _FOLDER).folders
        )

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        with suppress(FileNotFoundError), entered(folder, _FOLDER) as cache:
            kernels = filter(_KERNEL.fullmatch, listing(cache).folders)
            yield from each(cache, kernels, self.store, self._kernel, f"{_FOLDER}/")

    def _kernel(self, folder: Folder, name: str) -> Iterator[Item]:
        found = listing(folder)
        faults = tuple(_faults(found))
        arch = None if faults else arch_of(folder, _NEEDED[1])
        yield Item(self.store, name, folder.path, below_size(folder, found), arch=arch, faults=faults)


def _faults(found: Listing) -> Iterator[Fault]:
    for name in _NEEDED:
        if name not in found.files:
            yield Fault("kills", f"{name} is missing: DeepGEMM ends a start that looks it up")
            return
    if not found.files[_NEEDED[1]].st_size:
        yield Fault("kills", "kernel.cubin is empty: a start that loads it dies of it")
