"""SGLang's own kernels and everything else that tvm-ffi builds. Since 0.5.18:
<target>/<module>/build-<key>/deps-<key>/. Such a folder is a hit if the files in its sgl_deps.json still
hash to the folder's name; it contains no path of the store. Before: one folder per module, whose library
is loaded if it exists (0.5.14), or checked by ninja first (0.5.12, 0.5.13, and modules that are no kernels
of SGLang's)."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.built import is_whole
from sgl_tune.stores.item import Fault, Item, Listing, Setting, below_size, each, listed, listing, read_json
from sgl_tune.units import shown

_TARGET = re.compile(r"(sm|mp)\d+[a-z]?|gfx\w+|sail_[\w.-]+")
_BUILD, LEAF, _STAGING = "build-", "deps-", ".staging-"
_DEPS = "sgl_deps.json"
_OURS = "sgl_kernel_jit_"
_HEX = 16
_WORK = ("locks", "tmp")


class TvmFfi:
    store = "tvm-ffi"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        if any(name.startswith(_OURS) for name in found.folders):
            return True
        if folder.path.name == "tvm-ffi":
            return bool(found.folders or found.files)
        return any(self._is_target(folder, name) for name in found.folders if _TARGET.fullmatch(name))

    def _is_target(self, folder: Folder, name: str) -> bool:
        with suppress(OSError), entered(folder, name) as target:
            modules = listing(target).folders[:8]
            builds = (build for module in modules for build in listed(target, module).folders)
            return any(build.startswith((_BUILD, _STAGING)) for build in builds)
        return False

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        found = listing(folder)
        names = (name for name in found.folders if name not in _WORK)
        yield from each(folder, names, self.store, partial(self._below, setting))
        for name in sorted(name for name in found.files if name.endswith(".so")):
            size = found.only(name).size
            faults = () if size.bytes else (Fault("kills", "it is empty: a start that loads it dies of it"),)
            yield Item(self.store, name, folder.path / name, size, faults=faults)

    def _below(self, setting: Setting, folder: Folder, name: str) -> Iterator[Item]:
        if not _TARGET.fullmatch(name):
            yield _module(folder, name)
            return
        modules = listing(folder).folders
        yield from each(folder, modules, self.store, partial(_of_module, setting), f"{name}/")


def _of_module(setting: Setting, folder: Folder, name: str) -> Iterator[Item]:
    target, module = name.split("/")
    for build in listing(folder).folders:
        if build.startswith(_BUILD):
            with entered(folder, build) as leaves:
                yield from _leaves(leaves, f"{name}/{build}", module, target, setting)


def _leaves(folder: Folder, name: str, module: str, target: str, setting: Setting) -> Iterator[Item]:
    for leaf in listing(folder).folders:
        with entered(folder, leaf) as below:
            found = listing(below)
            size = below_size(below, found)
            if leaf.startswith(_STAGING):
                faults = [Fault("half-written", "a build that was never finished; no start looks at it")]
            elif not leaf.startswith(LEAF):
                continue
            else:
                faults = _leaf_faults(below, leaf, module, found, setting)
            yield Item("tvm-ffi", f"{name}/{leaf}", below.path, size, arch=target, faults=tuple(faults))


def _leaf_faults(folder: Folder, leaf: str, module: str, found: Listing, setting: Setting) -> list[Fault]:
    library = found.files.get(f"{module}.so")
    if library is None:
        return [Fault("half-written", "its library is missing: it is compiled again")]
    if not library.st_size:
        return [Fault("kills", "its library is empty: a start that loads it dies of it")]
    if not setting.looks:
        return []
    if not is_whole(folder, f"{module}.so", library.st_size):
        return [Fault("kills", "its library is cut off: a start that loads it dies of it")]
    try:
        entries = read_json(folder, _DEPS)
    except (OSError, ValueError) as error:
        return [Fault("half-written", f"{_DEPS} cannot be read ({error}): it is compiled again")]
    if not _are_entries(entries) or f"{LEAF}{deps_key(entries)}" != leaf:
        return [Fault("half-written", f"{_DEPS} does not hash to the folder's name: it is compiled again")]
    changed = setting.sources.changed(entries) if setting.sources else None
    if changed:
        return [Fault("stale", f"{shown(changed, 200)} is another here, or gone: it is compiled again")]
    return []


def _are_entries(entries: Any) -> bool:
    """Whether these are entries as SGLang decodes them: arrays of three strings."""
    return isinstance(entries, list) and all(
        isinstance(entry, list) and len(entry) == 3 and all(isinstance(part, str) for part in entry)
        for entry in entries
    )


def deps_key(entries: list[list[str]]) -> str:
    """Return SGLang's own hash of a build's dependencies."""
    import hashlib

    digest = hashlib.sha256()
    for entry in entries:
        digest.update(repr(tuple(entry)).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:_HEX]


def _module(folder: Folder, name: str) -> Item:
    found = listing(folder)
    libraries = [status for file, status in found.files.items() if file.endswith(".so")]
    says = "its library is empty: a start fails to load it, and compiles it again"
    if not libraries:
        says = "it has no library yet: it is compiled at the start that asks for it"
    is_whole = libraries and all(status.st_size for status in libraries)
    faults = () if is_whole else (Fault("half-written", says),)
    return Item("tvm-ffi", name, folder.path, below_size(folder, found), faults=faults)
