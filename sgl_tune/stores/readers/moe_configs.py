"""Triton configurations of SGLang's MoE kernels: tuned ones, and copies that name no GPU."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.config_files.names import BESIDE, FOLDER, beside, config_name, triton_of
from sgl_tune.stores.item import Fault, Item, Setting
from sgl_tune.stores.walk import Listing, listed, listing


class MoeConfigs:
    store = "moe-configs"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return FOLDER in found.folders and any(map(triton_of, listed(folder, FOLDER).folders))

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return self._below(folder, FOLDER, FOLDER, True)

    def _below(self, above: Folder, name: str, place: str, deeper: bool) -> Iterator[Item]:
        with entered(above, name) as folder:
            found = listing(folder)
            for file in sorted(name for name in found.files if not name.endswith(BESIDE)):
                parts = [one for one in (file, beside(file)) if one in found.files]
                size = found.only(*parts).size
                item = Item(self.store, f"{place}/{file}", folder.path / file, size)
                if config_name(file):
                    from sgl_tune.config_files.judged import judged

                    kind, why, versions, note = judged(*(folder.read(one)[1] for one in parts))
                    faults = (Fault(kind, why),) if kind else ()
                    item = item._replace(versions=versions, faults=faults, note=note)
                yield item
            for below in found.folders if deeper else ():
                yield from self._below(folder, below, f"{place}/{below}", False)
