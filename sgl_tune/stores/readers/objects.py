"""Libraries that keep one object or folder per kernel: CuTe DSL, DeepGEMM and TileLang."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from sgl_tune.cache.folder import Folder, entered
from sgl_tune.stores.built import arch_of
from sgl_tune.stores.item import Fault, Item, Listing, Setting, below_size, each, listed, listing, read_json

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
OBJECT = re.compile(r"([0-9a-f]{64})\.o")
_DEEPEST = 3
_FOLDER = "cache"
_KERNEL = re.compile(r"(\w+|kernel\..+)\.([0-9a-f]{8,64})")
_LOOKED_AT = 8
_SOURCE, _BINARY, _COMMITTED = "kernel.cu", "kernel.cubin", ".committed"
_FILES = {_SOURCE, _BINARY, _COMMITTED}
_KEY = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"\d+\.\d+[\w.+]*")
_LIBRARIES = ("kernel_lib.so", "kernel.cubin", "kernel.py", "executable.so")
_PARAMETERS = ("params.json", "params.pkl")
_STAGING = ".staging"


class CuteDsl:
    """CuTe DSL's objects as SGLang keeps them: <fingerprint>/[<name>/]<sha256>.o, each with a .lock file. The
    fingerprint covers Python, the host, the DSL, CUDA, the architecture and the sources, but no path. To look
    up an object, a start opens its lock file, and creates it if it is missing."""

    store = "cute-dsl"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        if folder.path.name in ("cute_aot", "flash_attention_cute_dsl_cache"):
            return True
        names = filter(_FINGERPRINT.fullmatch, found.folders)
        items = each(folder, names, self.store, partial(self._below, Setting("", looks=False), 1))
        return any(OBJECT.fullmatch(item.path.name) for item in items)

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        names = filter(_FINGERPRINT.fullmatch, listing(folder).folders)
        return each(folder, names, self.store, partial(self._below, setting, _DEEPEST))

    def _below(self, setting: Setting, depth: int, folder: Folder, path: str) -> Iterator[Item]:
        found = listing(folder)
        for file in sorted(filter(OBJECT.fullmatch, found.files)):
            yield self._object(folder, file, f"{path}/{file}", found, setting)
        below = partial(self._below, setting, depth - 1)
        yield from each(folder, found.folders if depth else (), self.store, below, f"{path}/")

    def _object(self, folder: Folder, file: str, name: str, found: Listing, setting: Setting) -> Item:
        size = found.only(file).size
        faults = []
        if not size.bytes and not setting.writable:
            says = "it is empty, and cannot be removed in a read-only place"
            faults.append(Fault("kills", f"{says}: a start that looks it up dies of it"))
        elif not size.bytes:
            faults.append(Fault("half-written", "it is empty: a start removes it and compiles again"))
        if not setting.writable and f"{file[:-2]}.lock" not in found.files:
            says = "its lock file is missing, and this place is read-only"
            faults.append(Fault("kills", f"{says}: a start that looks it up dies of it"))
        return Item(self.store, name, folder.path / file, size, faults=tuple(faults))


class DeepGemm:
    """DeepGEMM: cache/<name>.<digest>/ with kernel.cubin and an empty .committed, without which it is not
    looked at. The digest covers the compiler's whole answer to --version, the flags, the source and its
    headers, but no path of the cache. Before 0.2: cache/kernel.<name>.<digest>/ with kernel.cu and
    kernel.cubin. A folder that lacks what is loaded ends the process."""

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


class TileLang:
    """TileLang: <version>/<platform>/kernels/<sha256>/, one kernel each (older releases lack the folders
    above). The key covers the function, the target, the flags, TileLang's version and its libraries, but no
    path. An entry without its library or its parameters is compiled again. Newer entries are compared with a
    manifest; those that differ are removed and compiled again."""

    store = "tilelang"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        if folder.path.name == "tilelang" or str(folder.path).endswith("/.tilelang/cache"):
            return bool(found.folders)
        keys = [name for name in found.folders if _KEY.fullmatch(name)]
        return any(set(_PARAMETERS) & set(listed(folder, name).files) for name in keys[:8])

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        return each(folder, listing(folder).folders, self.store, partial(self._below, 3))

    def _below(self, depth: int, folder: Folder, path: str) -> Iterator[Item]:
        found, (*above, name) = listing(folder), path.split("/")
        if _KEY.fullmatch(name):
            version = next(filter(_VERSION.fullmatch, above), None)
            versions = {"tilelang": version.replace("_", "+", 1)} if version else {}
            faults, size = tuple(_faults(folder, found)), below_size(folder, found)
            yield Item(self.store, path, folder.path, size, versions, faults=faults)
        elif depth and name != _STAGING:
            yield from each(folder, found.folders, self.store, partial(self._below, depth - 1), f"{path}/")


def _faults(folder: Folder, found: Listing) -> Iterator[Fault]:
    if not set(_LIBRARIES) & set(found.files) or not set(_PARAMETERS) & set(found.files):
        yield Fault("half-written", "its library or its parameters are missing: it is compiled again")
    elif any(not found.files[file].st_size for file in (*_LIBRARIES, *_PARAMETERS) if file in found.files):
        yield Fault("half-written", "a file of it is empty: it is compiled again")
    elif "manifest.json" in found.files and not _fits(folder, found):
        yield Fault("half-written", "its manifest does not fit: a start removes it and compiles again")


def _fits(folder: Folder, found: Listing) -> bool:
    """Whether the files' sizes match the manifest. TileLang itself compares hashes."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        files: dict[str, Any] = dict(read_json(folder, "manifest.json")["files"])
        return bool(files) and all(found.files[name].st_size == told["size"] for name, told in files.items())
    return False
