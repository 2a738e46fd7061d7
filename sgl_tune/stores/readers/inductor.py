"""Inductor: graphs by key in `fxgraph`, AOTAutograd's in `aotautograd`, generated code by its hash in
folders of two letters, and Triton's kernels in their own folder. No key and no lookup contains the
folder's path, so a copy elsewhere works. C++ code, which only CPU graphs have, is loaded under a lock file
in `locks`, so such a graph needs a writable folder. The files are pickles: none is read here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.item import Fault, Item, Listing, Setting, below_size, each, listing
from sgl_tune.stores.readers.triton import kernels

_GRAPHS, _AUTOGRAD = "fxgraph", "aotautograd"
_CODE = re.compile(r"[a-z0-9]{2}")
_TRITON = ("triton", "triton_cache")
_TEMPORARY = ".tmp"


class Inductor:
    store = "inductor"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return bool({_GRAPHS, _AUTOGRAD, "inductor_cache"} & set(found.folders)) or (
            folder.path.name.startswith("torchinductor_")
        )

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return each(folder, listing(folder).folders, self.store, partial(self._below, setting, 4))

    def _below(self, setting: Setting, depth: int, folder: Folder, path: str) -> Iterator[Item]:
        """Yield the items, also below `torch_compile_cache`'s folders, each of which has both kinds."""
        name = path.rpartition("/")[2]
        if name in (_GRAPHS, _AUTOGRAD):
            yield from self._graphs(folder, f"{path}/")
        elif name in _TRITON:
            at = setting._replace(place=f"{setting.place}/{path}")
            yield from self._triton(folder, f"{path}/", at)
        elif _CODE.fullmatch(name):
            yield self._code(folder, path, setting)
        elif depth and name not in ("locks", "cache", "aoti"):
            below = partial(self._below, setting, depth - 1)
            yield from each(folder, listing(folder).folders, self.store, below, f"{path}/")

    def _graphs(self, folder: Folder, prefix: str) -> Iterator[Item]:
        """Yield the graphs. `fxgraph` distributes its keys over folders of two letters."""
        for name in listing(folder).folders:
            with entered(folder, name) as below:
                found = listing(below)
                if found.folders:
                    yield from self._graphs(below, f"{prefix}{name}/")
                if found.files or not found.folders:
                    yield self._graph(below, f"{prefix}{name}", found)

    def _graph(self, folder: Folder, name: str, found: Listing) -> Item:
        whole = [file for file, status in found.files.items() if status.st_size and _TEMPORARY not in file]
        faults: tuple[Fault, ...] = ()
        if len(whole) < max(len(found.files), 1):
            faults = (Fault("half-written", "an empty or unfinished graph: it is compiled again"),)
        return Item(self.store, name, folder.path, found.size, faults=faults)

    def _triton(self, folder: Folder, prefix: str, setting: Setting) -> Iterator[Item]:
        """Yield Triton's kernels. If Inductor made them, they lie in one folder per device."""
        yield from kernels(folder, setting, self.store, prefix)
        for device in listing(folder).folders:
            if device.isdecimal():
                at = setting._replace(place=f"{setting.place}/{device}")
                with entered(folder, device) as below:
                    yield from kernels(below, at, self.store, f"{prefix}{device}/")

    def _code(self, folder: Folder, name: str, setting: Setting) -> Item:
        found = listing(folder)
        compiled = any(file.endswith(".so") for file in found.files)
        faults: list[Fault] = []
        if any(not status.st_size for status in found.files.values()):
            faults.append(Fault("half-written", "a file of it is empty: a start that loads it dies of it"))
        if compiled and not setting.writable:
            says = "torch locks C++ code to load it, and this place is read-only"
            faults.append(Fault("kills", f"{says}: a start that loads it dies of it"))
        return Item(self.store, name, folder.path, below_size(folder, found), faults=tuple(faults))
