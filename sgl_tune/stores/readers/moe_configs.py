"""Triton configurations of SGLang's MoE kernels: tuned ones, and copies that name no GPU."""

from collections.abc import Iterator

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.config_files.contents import contents
from sgl_tune.config_files.names import BESIDE, FOLDER, beside, config_name, triton_of
from sgl_tune.stores.item import Fault, Item, Listing, Setting, Size, listed, listing, unread

_LINK = Fault("unread", "it is a link, which a server follows: what is behind it was not read")
_NO_FILE = Fault("kills", "a server that looks it up dies or waits forever: it is no regular file")


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
                try:
                    raws = [folder.read(one)[1] for one in parts] if config_name(file) else []
                except OSError as error:
                    yield unread(self.store, item.name, item.path, error)
                    continue
                yield _judged(item, *raws) if raws else item
            for name in (*found.odd, *filter(config_name, found.folders)):
                if config_name(name) or (deeper and triton_of(name)):
                    path = folder.path / name
                    fault = _LINK if path.is_symlink() else _NO_FILE
                    yield Item(self.store, f"{place}/{name}", path, Size(), faults=(fault,))
            for below in found.folders if deeper else ():
                if not config_name(below):
                    yield from self._below(folder, below, f"{place}/{below}", False)


def _judged(item: Item, raw: bytes | None, note: bytes | None = None) -> Item:
    """Return the item with what a file of configurations, and sgl-tune's note beside it, say of it."""
    from sgl_tune.config_files.provenance import digest_of, provenance

    if raw is None:
        return item._replace(faults=(_NO_FILE,))
    held = contents(raw)
    if held.kills:
        return item._replace(faults=(Fault("kills", f"a server that looks it up dies: {held.kills}"),))
    if held.fault:
        return item._replace(faults=(Fault("kills" if held.entries else "stale", held.fault),))
    told = provenance(note or b"")
    if told is None:
        return item
    says = told.says if told.digest == digest_of(raw) else "changed since it was tuned"
    return item._replace(versions={"triton": told.triton, "GPU": told.gpu}, note=says)
