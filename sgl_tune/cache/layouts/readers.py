"""The layouts of caches, each with its reader: SGLang's, vLLM's, and FlashInfer's managed store. A reader
recognises its layout by the names in a folder."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Way, read_below
from sgl_tune.cache.layouts.cache import BROKEN, KEY, MANIFEST, Cache, RankFile, is_private
from sgl_tune.cache.rank_names import RankName, VllmRank

ONE_FILE = "autotune_configs.json"
_BEGIN = "autotune_configs"
_ROOT = "flashinfer_autotune_cache"
_ARCH = re.compile(r"sm\d{2,4}[a-z]?|cpu")
OnError = Callable[[OSError], None]


class Listing(NamedTuple):
    folder: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]
    root: Path

    def paths(self, names: tuple[str, ...] | list[str]) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in names)

    def parents(self, count: int) -> list[str]:
        """Return the names of the folder and its ancestors, nearest first."""
        parts = self.folder.parts
        if len(parts) > count and ".." not in parts:
            return list(parts[: -count - 1 : -1])
        here = os.path.abspath(self.folder).split(os.sep)  # noqa: PTH100, PTH206 resolve() follows links
        return (here[::-1] + [""] * count)[:count]

    def temporary(self) -> list[str]:
        """Return the temporary files of any writer."""
        return [name for name in self.files if name.startswith(".") and name.endswith((".tmp", ".journal"))]


def list_folder(folder: Path, root: Path, on_error: OnError) -> Listing:
    with Way() as way:
        return list_on(way, folder, root, on_error)


def list_on(way: Way, folder: Path, root: Path, on_error: OnError) -> Listing:
    """Return one folder's names, without private folders. Links to folders are left out: they may lead in
    circles or elsewhere."""
    files, folders = [], []
    try:
        with os.scandir(way.to(folder, root).descriptor) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    folders += [] if is_private(entry.name) else [entry.name]
                elif not _leads_to_folder(entry):
                    files.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it was removed meanwhile
    except OSError as error:
        error.filename = error.filename or str(folder)  # Python gives no name for a descriptor
        on_error(error)
    return Listing(folder, tuple(sorted(files)), tuple(sorted(folders)), root)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


class Layout(NamedTuple):
    """A layout of caches. `read`: returns the cache in a folder of this layout, None for another folder."""

    name: str
    whose: str
    roots: tuple[str, ...]
    read: Callable[[Listing, OnError], Cache | None]


def are_vllms(names: tuple[str, ...]) -> bool:
    return any(name.startswith(_BEGIN) and (name == ONE_FILE or VllmRank.parse(name)) for name in names)


def _read_vllm(listing: Listing, on_error: OnError) -> Cache | None:
    """Read vLLM's cache. Version and architecture are not in the path if the user set its directory."""
    if not are_vllms(listing.files):
        return None
    key, arch, version, root = listing.parents(4)
    placed = root == _ROOT
    ranks = sorted((rank, name) for name in listing.files if (rank := VllmRank.parse(name)))
    names = [name for _, name in ranks] + [ONE_FILE] * (ONE_FILE in listing.files)
    return Cache(
        listing.folder,
        VLLM.name,
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key,
        files=tuple(RankFile(listing.folder / name, None) for name in names),
        leftovers=listing.paths(listing.temporary()),
    )


VLLM = Layout("vllm", "vLLM", (_ROOT,), _read_vllm)


def _read_sglang(listing: Listing, on_error: OnError) -> Cache | None:
    key, arch, version = listing.parents(3)
    placed = bool(_ARCH.fullmatch(arch) and KEY.fullmatch(key) and not are_vllms(listing.files))
    names = (*listing.files, *listing.folders)  # a folder of a file's name ends a start
    ranks = [(rank.order, rank, name) for name in names if (rank := RankName.parse(name))]
    if not ranks and not placed:
        return None
    files = (RankFile(listing.folder / name, rank) for _, rank, name in sorted(ranks))
    broken = [name for name in listing.files if name.endswith(BROKEN)]
    runs = list_folder(listing.folder / "runs", listing.root, on_error) if "runs" in listing.folders else None
    leftovers = listing.paths(listing.temporary()) + (runs.paths(runs.temporary()) if runs else ())
    return Cache(
        listing.folder,
        SGLANG.name,
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key if placed else None,
        files=tuple(files),
        leftovers=leftovers,
        runs=runs.paths([name for name in runs.files if name.endswith(".json")]) if runs else (),
        broken=listing.paths([name for name in broken if RankName.parse(name.removesuffix(BROKEN))]),
        manifest=listing.folder / MANIFEST if MANIFEST in listing.files else None,
    )


SGLANG = Layout("sglang", "SGLang", ("flashinfer/autotune",), _read_sglang)


def _read_managed(listing: Listing, on_error: OnError) -> Cache | None:
    key, schema = listing.parents(2)
    manifest = listing.folder / "manifest.json"
    if "entries" not in listing.folders or not (schema == "v2" or manifest.name in listing.files):
        return None
    entries = list_folder(listing.folder / "entries", listing.root, on_error)
    files = [name for name in entries.files if name.endswith(".json")]
    environment = _environment(manifest, listing.root)
    return Cache(
        listing.folder,
        MANAGED.name,
        flashinfer=environment.get("flashinfer_version"),
        arch=environment.get("gpu"),  # the store knows GPUs by name only
        key=key,
        files=tuple(RankFile(path, None) for path in entries.paths(files)),
        leftovers=listing.paths(listing.temporary()) + entries.paths(entries.temporary()),
        manifest=manifest if manifest.name in listing.files else None,
    )


def _environment(manifest: Path, root: Path) -> dict[str, str]:
    try:
        content = json.loads(read_below(manifest, root))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if isinstance(value, str)}


MANAGED = Layout("flashinfer-v2", "FlashInfer's managed store", ("autotune/v2", "v2"), _read_managed)


LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (SGLANG, VLLM, MANAGED)}


def read_cache(listing: Listing, on_error: OnError) -> Cache | None:
    found = (layout.read(listing, on_error) for layout in LAYOUTS.values())
    return next((cache for cache in found if cache), None)
