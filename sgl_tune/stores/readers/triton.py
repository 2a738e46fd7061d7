"""Triton: one folder per kernel, named by the hash of everything that it was compiled from.
`FileCacheManager.get_group` reads `__grp__<kernel>.json`, whose `child_paths` are absolute: if one of
these files is missing, the kernel is compiled again. Files without a group (launchers, `cuda_utils`,
autotuned choices) are looked up by name."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.item import Fault, Item, Listing, Setting, below_size, each, listing, read_json
from sgl_tune.units import shown

GROUP = "__grp__"
_KEY = re.compile(r"[A-Z2-7]{52}")  # base32 of a SHA-256
_STAGES = (".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".source", ".amdgcn", ".hsaco")
_BINARIES = (".cubin", ".hsaco")
_PYTHON = re.compile(r"\.cpython-(\d)(\d+)-")
_GRAPHS, _AUTOGRAD = "fxgraph", "aotautograd"
_CODE = re.compile(r"[a-z0-9]{2}")
_TRITON = ("triton", "triton_cache")
_TEMPORARY = ".tmp"


class Triton:
    store = "triton"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return any(_KEY.fullmatch(name) for name in found.folders)

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return kernels(folder, setting, self.store)


def kernels(folder: Folder, setting: Setting, store: str, prefix: str = "") -> Iterator[Item]:
    """Yield the kernels in a folder. Inductor has such a folder in its own store."""
    keys = filter(_KEY.fullmatch, listing(folder).folders)
    return each(folder, keys, store, partial(_kernel, setting, store), prefix)


def _kernel(setting: Setting, store: str, folder: Folder, name: str) -> Iterator[Item]:
    found = listing(folder)
    groups = [file for file in found.files if file.startswith(GROUP)]
    versions, arch, faults = _told(folder, groups, found)
    if not groups:
        faults += _without_group(found)
    elif setting.looks:
        place = f"{setting.place}/{folder.path.name}"
        faults += filter(None, [_look_up(folder, group, found, place, setting) for group in groups])
    python = next((f"{m[1]}.{m[2]}" for file in found.files if (m := _PYTHON.search(file))), None)
    yield Item(store, name, folder.path, found.size, versions, arch, python, tuple(faults))


def _without_group(found: Listing) -> list[Fault]:
    if any(file.endswith(_STAGES) for file in found.files):
        return [Fault("half-written", "its group was never written: it is compiled again")]
    if not found.files:
        return [Fault("half-written", "it is empty: a look-up made the folder, and nothing came of it")]
    return []


def _told(
    folder: Folder, groups: list[str], found: Listing
) -> tuple[dict[str, str], str | None, list[Fault]]:
    """Return the compiler's version and the GPU from the kernel's own description, and its faults."""
    for group in groups:
        name = group.removeprefix(GROUP)
        if name not in found.files:
            continue
        try:
            told = read_json(folder, name)
        except (OSError, ValueError) as error:
            why = f"{name} cannot be read ({error}): a start that looks it up dies of it"
            return {}, None, [Fault("kills", why)]
        if not isinstance(told, dict) or not isinstance(told.get("target"), dict):
            return {}, None, [Fault("kills", f"{name} names no target: a start that looks it up dies of it")]
        version = told.get("triton_version")
        versions = {"triton": version} if isinstance(version, str) else {}
        return versions, _arch(told["target"]), []
    return {}, None, []


def _arch(target: dict[str, Any]) -> str | None:
    arch = target.get("arch")
    if target.get("backend") == "cuda" and type(arch) is int:
        return f"sm{arch}"
    return arch if isinstance(arch, str) else None


def _look_up(folder: Folder, group: str, found: Listing, place: str, setting: Setting) -> Fault | None:
    """Look up a group as get_group does in a store that is seen at `place`; return its fault, or None."""
    try:
        told = read_json(folder, group)
    except (OSError, ValueError) as error:
        return Fault("half-written", f"{group} cannot be read ({error}): it is compiled again")
    children = told.get("child_paths") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(children, (dict, type(None))):
        return Fault("kills", f"{group} is {shown(told)}: a start that looks it up dies of it")
    if children is None or group.removeprefix(GROUP) not in children:
        says = f"{group} does not name the kernel's own description: it is compiled again"
        return Fault("half-written", says)
    faults = (_child(name, path, found, place, setting) for name, path in children.items())
    return next(filter(None, faults), None)


def _child(name: str, path: Any, found: Listing, place: str, setting: Setting) -> Fault | None:
    if not isinstance(path, str):
        return Fault("kills", f"the path of {name} is {shown(path)}: a start that looks it up dies of it")
    where, _, file = os.path.normpath(path).rpartition("/")
    if where != place:
        still = setting.is_here and "\0" not in path and Path(path).exists()
        says = "found there today, and compiled again once that is gone" if still else "it is compiled again"
        return Fault("moved", f"its group points to {shown(path.rpartition('/')[0], 200)}: {says}", still)
    if file not in found.files:
        return Fault("half-written", f"{name} is missing: it is compiled again")
    if name.endswith(_BINARIES) and not found.files[file].st_size:
        return Fault("kills", f"{name} is empty: a start that loads it dies of it")
    return None


class Inductor:
    """Inductor: graphs by key in `fxgraph`, AOTAutograd's in `aotautograd`, generated code by its hash in
    folders of two letters, and Triton's kernels in their own folder. No key and no lookup contains the
    folder's path, so a copy elsewhere works. C++ code, which only CPU graphs have, is loaded under a lock
    file in `locks`, so such a graph needs a writable folder. The files are pickles: none is read here."""

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
