"""FlashInfer's modules: <version>/<architectures>/cached_ops/<module>/<module>.so, and ninja's files. If
an installed package offers a module, `build_and_load` loads it without any other check. Any other module
goes through ninja, whose files contain the folder's path: at another path everything is built again. CuTe
DSL's modules lie there too: `<module>_<arch>_cute_dsl`, loaded if `meta.json` matches the environment."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.built import Freshness, is_whole
from sgl_tune.stores.item import (
    DEEPEST_FOLDER,
    Fault,
    Item,
    Listing,
    Setting,
    below_size,
    each,
    listed,
    listing,
    read_json,
)

MODULES = "cached_ops"
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+]*")
_ARCH = re.compile(r"\d+[a-z]?(_\d+[a-z]?)*")
CUTE = "_cute_dsl"
_WORK = "tmp"  # the folder of locks
NAME = "cubins"
_KINDS = (".cubin", ".so", ".h", ".txt", ".json")
_HALF = re.compile(r"[0-9a-f]{64}\.so")
_FOLDERS = (re.compile(r"\d+\.\d+\.\d+[\w.+]*"), re.compile(r"\d+"), re.compile(r"\w+"))
_CUT = Fault("half-written", "it is cut off: the module's host code is not run")


class FlashInferModules:
    store = "flashinfer-jit"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        for version in filter(_VERSION.fullmatch, found.folders):
            with suppress(OSError), entered(folder, version) as below:
                archs = filter(_ARCH.fullmatch, listing(below).folders)
                if any(MODULES in listed(below, arch).folders for arch in archs):
                    return True
        return False

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        versions = filter(_VERSION.fullmatch, listing(folder).folders)
        return each(folder, versions, self.store, partial(self._of_version, setting))

    def _of_version(self, setting: Setting, folder: Folder, version: str) -> Iterator[Item]:
        archs = filter(_ARCH.fullmatch, listing(folder).folders)
        return each(folder, archs, self.store, partial(self._of_arch, setting), f"{version}/")

    def _of_arch(self, setting: Setting, folder: Folder, name: str) -> Iterator[Item]:
        if MODULES not in listing(folder).folders:
            return
        version, arch = name.split("/")
        read = partial(_module, setting, Freshness())
        with entered(folder, MODULES) as modules:
            names = (one for one in listing(modules).folders if one != _WORK)
            for item in each(modules, names, self.store, read, f"{name}/{MODULES}/"):
                yield item._replace(versions={"flashinfer": version, **item.versions}, arch=f"sm{arch}")


def _module(setting: Setting, freshness: Freshness, folder: Folder, name: str) -> Iterator[Item]:
    found, module = listing(folder), name.rpartition("/")[2]
    faults = tuple(_faults(folder, module, name, found, setting, freshness))
    versions = _cute_version(folder, module)
    yield Item("flashinfer-jit", name, folder.path, below_size(folder, found), versions, faults=faults)


def _faults(
    folder: Folder, module: str, name: str, found: Listing, setting: Setting, freshness: Freshness
) -> Iterator[Fault]:
    if module.endswith(CUTE):
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
    told = _meta(folder) if module.endswith(CUTE) else None
    version = told.get("cute_dsl_version") if told else None
    return {"cutlass-dsl": version} if isinstance(version, str) else {}


def _meta(folder: Folder) -> dict[str, Any] | None:
    """Return what a module of CuTe DSL's says of itself, or None if that cannot be read."""
    with suppress(OSError, ValueError):
        told = read_json(folder, "meta.json")
        return told if isinstance(told, dict) else None
    return None


def _cute_faults(folder: Folder, found: Listing) -> Iterator[Fault]:
    if not any(name.endswith(".o") for name in found.files):
        yield Fault("half-written", "it has no object yet: it is compiled at the start that asks for it")
    elif _meta(folder) is None:
        yield Fault("half-written", "its meta.json cannot be read: a start removes it and compiles again")


class FlashInferCubins:
    """FlashInfer's cubins: downloaded once, and compared with the checksums that FlashInfer knows."""

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


class HostHalves:
    """The host code of modules, which sgl-tune keeps: <version>/<architecture>/<module>/<sha256>.so."""

    store = "halves"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return any(_HALF.fullmatch(item.path.name) for item in self._below(folder, ""))

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return self._below(folder, "")

    def _below(self, folder: Folder, path: str) -> Iterator[Item]:
        parts, found = path.split("/") if path else [], listing(folder)
        if len(parts) < len(_FOLDERS):
            names = filter(_FOLDERS[len(parts)].fullmatch, found.folders)
            yield from each(folder, names, self.store, self._below, f"{path}/" if path else "")
            return
        version, arch, _ = parts
        for file in sorted(filter(_HALF.fullmatch, found.files)):
            size = found.only(file).size
            faults = () if is_whole(folder, file, size.bytes) else (_CUT,)
            where, versions = f"{path}/{file}", {"flashinfer": version}
            yield Item(self.store, where, folder.path / file, size, versions, f"sm{arch}", faults=faults)
