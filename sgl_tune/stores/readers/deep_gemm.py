"""DeepGEMM: cache/<name>.<digest>/ with kernel.cubin and an empty .committed, without which it is not looked
at. The digest covers the compiler's whole answer to --version, the flags, the source and its headers, but no
path of the cache. Before 0.2: cache/kernel.<name>.<digest>/ with kernel.cu and kernel.cubin. A folder that
lacks what is loaded ends the process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.elf import arch_of
from sgl_tune.stores.item import Fault, Item, Listing, Setting, below_size, each, listed, listing

_FOLDER = "cache"
_KERNEL = re.compile(r"(\w+|kernel\..+)\.([0-9a-f]{8,64})")
_LOOKED_AT = 8
_SOURCE, _BINARY, _COMMITTED = "kernel.cu", "kernel.cubin", ".committed"
_FILES = {_SOURCE, _BINARY, _COMMITTED}


class DeepGemm:
    store = "deep-gemm"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        if _FOLDER not in found.folders:
            return False
        with suppress(OSError), entered(folder, _FOLDER) as cache:
            names = list(filter(_KERNEL.fullmatch, listing(cache).folders))
            return any(_FILES & listed(cache, name).files.keys() for name in names[:_LOOKED_AT])
        return False

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        with suppress(FileNotFoundError), entered(folder, _FOLDER) as cache:
            kernels = filter(_KERNEL.fullmatch, listing(cache).folders)
            yield from each(cache, kernels, self.store, self._kernel, f"{_FOLDER}/")

    def _kernel(self, folder: Folder, name: str) -> Iterator[Item]:
        found = listing(folder)
        fault = _fault(folder.path.name, found)
        arch, faults = (None, (fault,)) if fault else (arch_of(folder, _BINARY), ())
        yield Item(self.store, name, folder.path, below_size(folder, found), arch=arch, faults=faults)


def _fault(kernel: str, found: Listing) -> Fault | None:
    is_old = kernel.startswith("kernel.")
    if not is_old and _COMMITTED not in found.files:
        return Fault("half-written", f"{_COMMITTED} is missing: it is compiled again")
    for name in (_SOURCE, _BINARY) if is_old else (_BINARY,):
        if name not in found.files:
            return Fault("kills", f"{name} is missing: DeepGEMM ends a start that looks it up")
    if not found.files[_BINARY].st_size:
        return Fault("kills", f"{_BINARY} is empty: a start that loads it dies of it")
    return None
