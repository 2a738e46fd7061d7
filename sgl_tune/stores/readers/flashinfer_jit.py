"""FlashInfer's modules: <version>/<architectures>/cached_ops/<module>/<module>.so, and ninja's files. If
an installed package offers a module, `build_and_load` loads it without any other check. Any other module
goes through ninja, whose files contain the folder's path: at another path everything is built again. CuTe
DSL's modules lie there too: `<module>_<arch>_cute_dsl`, loaded if `meta.json` matches the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sgl_tune.cache.folder import Folder
from sgl_tune.stores.elf import is_whole
from sgl_tune.stores.item import Fault, Item, Setting, Size, unread
from sgl_tune.stores.ninja import Freshness
from sgl_tune.stores.walk import Listing, below_size, entered, listed, listing, read_json

MODULES = "cached_ops"
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+]*")
_ARCH = re.compile(r"\d+[a-z]?(_\d+[a-z]?)*")
_CUTE = "_cute_dsl"
_WORK = "tmp"  # the folder of locks


class FlashInferModules:
    store = "flashinfer-jit"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        for version in filter(_VERSION.fullmatch, found.folders):
            try:
                with entered(folder, version) as below:
                    archs = [name for name in listing(below).folders if _ARCH.fullmatch(name)]
                    if any(MODULES in listed(below, arch).folders for arch in archs):
                        return True
            except OSError:
                continue
        return False

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        for version in filter(_VERSION.fullmatch, listing(folder).folders):
            try:
                with entered(folder, version) as below:
                    yield from self._of_version(below, version, setting)
            except OSError as error:
                yield unread(self.store, version, folder.path / version, error)

    def _of_version(self, folder: Folder, version: str, setting: Setting) -> Iterator[Item]:
        for arch in filter(_ARCH.fullmatch, listing(folder).folders):
            try:
                with entered(folder, arch) as target, entered(target, MODULES) as modules:
                    yield from self._modules(modules, version, arch, setting)
            except FileNotFoundError:
                continue
            except OSError as error:
                yield unread(self.store, f"{version}/{arch}", folder.path / arch, error)

    def _modules(self, folder: Folder, version: str, arch: str, setting: Setting) -> Iterator[Item]:
        freshness = Freshness()
        for module in listing(folder).folders:
            if module == _WORK:
                continue
            name = f"{version}/{arch}/{MODULES}/{module}"
            versions = {"flashinfer": version}
            try:
                with entered(folder, module) as below:
                    found = listing(below)
                    size = below_size(below, found)
                    versions |= _cute_version(below, module)
                    faults = _faults(below, module, name, found, setting, freshness)
                    yield Item(
                        self.store, name, below.path, size, versions, f"sm{arch}", faults=tuple(faults)
                    )
            except OSError as error:
                unread = Fault("unread", f"it cannot be looked into ({error.strerror})")
                yield Item(
                    self.store, name, folder.path / module, Size(), versions, f"sm{arch}", None, (unread,)
                )


def _faults(
    folder: Folder, module: str, name: str, found: Listing, setting: Setting, freshness: Freshness
) -> Iterator[Fault]:
    if module.endswith(_CUTE):
        yield from _cute_faults(folder, found)
        return
    library = found.files.get(f"{module}.so")
    if library is None or not library.st_size:
        yield Fault("half-written", "it has no library yet: it is compiled at the start that asks for it")
    elif setting.looks and not is_whole(folder, f"{module}.so", library.st_size):
        yield Fault("kills", "its library is cut off: a start that loads it dies of it")
    elif setting.looks and name not in setting.offered:
        yield from _as_ninja(folder, found, f"{setting.place}/{name}", setting, freshness)


def _as_ninja(
    folder: Folder, found: Listing, place: str, setting: Setting, freshness: Freshness
) -> Iterator[Fault]:
    """Yield what ninja would do with a module that no package offers."""
    if "build.ninja" not in found.files:
        yield Fault("stale", "ninja's files are gone: it is compiled again, unless a package offers it")
        return
    why = freshness.objection(folder, place, setting.is_here)
    if why:
        yield why
    elif not setting.writable:
        says = "a lock is written beside it, and this place is read-only: a start dies of it"
        yield Fault("kills", f"{says}, unless a package offers it")


def _cute_version(folder: Folder, module: str) -> dict[str, str]:
    if not module.endswith(_CUTE):
        return {}
    try:
        told = read_json(folder, "meta.json")
    except (OSError, ValueError):
        return {}
    version = told.get("cute_dsl_version") if isinstance(told, dict) else None
    return {"cutlass-dsl": version} if isinstance(version, str) else {}


def _cute_faults(folder: Folder, found: Listing) -> Iterator[Fault]:
    if not any(name.endswith(".o") for name in found.files):
        yield Fault("half-written", "it has no object yet: it is compiled at the start that asks for it")
        return
    try:
        told = read_json(folder, "meta.json")
    except (OSError, ValueError):
        told = None
    if not isinstance(told, dict):
        yield Fault("half-written", "its meta.json cannot be read: a start removes it and compiles again")
