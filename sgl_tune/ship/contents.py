"""Collect the contents of a bundle: files of caches and stores, renamed, with their new paths."""

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Folder, entered, open_folder
from sgl_tune.cache.layouts.cache import MANIFEST, Cache
from sgl_tune.ship.places import OFFER_PACKAGE, OFFERS, name_fault, place_of
from sgl_tune.stores.describe import Summary
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import DEEPEST_FOLDER, Item, Kind, Setting, listing, read_json
from sgl_tune.stores.offer import offer_of, package_files
from sgl_tune.stores.readers.flashinfer import CUTE
from sgl_tune.stores.readers.objects import OBJECT
from sgl_tune.stores.readers.triton import GROUP
from sgl_tune.stores.relocate import group_at
from sgl_tune.stores.rows import BY_ID

_NEVER = re.compile(
    r"\.sgl-tune.*|gpu_p2p_access_cache.*|.*\.lock|.*\.tmp|.*\.tmp\..*|tmp\.pid_.*|\.nfs.*|.*\.part"
)
_NINJAS = re.compile(r"build\.ninja|\.ninja_log|\.ninja_deps|.*\.o")
_BUILT_BY_NINJA = ("flashinfer-jit", "tvm-ffi")
_NO_MATTER: tuple[Kind, ...] = ("moved", "stale")  # relocation mends it, or the server decides
_WHY: dict[Kind, str] = {"half-written": "are half-written", "kills": "would end a start"}
_STAGING = ".staging"
Step = Callable[[], None]


class Source(NamedTuple):
    """A file on this disk, or its `content` in the bundle if that differs."""

    folder: Path
    root: Path
    name: str
    content: bytes | None = None


@dataclass
class Contents:
    """What a bundle will contain. `left_out`: counts of files that are not packed, by reason."""

    at: str
    files: dict[str, Source] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    stores: dict[str, Summary] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, path: str, source: Source) -> None:
        fault = name_fault(path)
        if fault:
            self.left_out[f"files whose name {fault}"] += 1
        else:
            self.files.setdefault(path, source)


def add_cache(contents: Contents, cache: Cache) -> None:
    """Add a cache's rank files and their manifest, but no files that writers and old runs left."""
    root = cache.root or cache.path
    place = f"flashinfer/autotune/{cache.flashinfer}/{cache.arch}/{cache.key}"
    names = [file.path.name for file in cache.files]
    names += [MANIFEST] if cache.manifest else []
    for name in names:
        contents.add(f"{place}/{name}", Source(cache.path, root, name))
    for what, found in (
        ("temporary files of writers", cache.leftovers),
        ("results of old runs", cache.runs),
        ("broken files set aside", cache.broken),
    ):
        if found:
            contents.left_out[what] += len(found)


def add_store(
    contents: Contents, stored: Stored, step: Step, wanted: Callable[[Item], str | None] = lambda item: None
) -> None:
    """Add a store's complete items. `wanted`: returns why an item is of no use to the server."""
    title = BY_ID[stored.store].title
    if not BY_ID[stored.store].ships:
        contents.left_out[f"{title}: of this machine alone"] += 1
        return
    taken: list[Item] = []
    with open_folder(stored.path, stored.root) as folder:
        for item in stored.items(Setting(str(stored.path.absolute()), is_here=False)):
            step()
            kind = next((fault.kind for fault in item.faults if fault.kind not in _NO_MATTER), None)
            why = _WHY.get(kind, "cannot be read") if kind else wanted(item)
            if why:
                contents.left_out[f"{title}: items that {why}"] += 1
                continue
            _add_item(contents, stored, folder, item)
            contents.stores.setdefault(stored.store, Summary(stored)).add(item, keep=False)
            taken.append(item._replace(faults=()))  # those left do not matter
        if stored.store == "flashinfer-jit" and taken:
            _add_offer(contents, taken, folder)


def _add_item(contents: Contents, stored: Stored, store: Folder, item: Item) -> None:
    place = place_of(stored.store, stored.path, item.arch is not None)
    parts = item.name.split("/") if item.name != "." else []
    path = "/".join((place, *parts))
    with entered(store, *parts[:-1]) as above:
        status = above.status(parts[-1]) if parts else None
        if status and not stat.S_ISDIR(status.st_mode):
            _add_file(contents, stored, above, path)
        else:
            with entered(above, *parts[-1:]) as folder:
                _add_folder(contents, stored, folder, path, DEEPEST_FOLDER)
    if stored.store == "tilelang" and "kernels" in parts:
        contents.folders.add(f"{path.partition('/kernels/')[0]}/{_STAGING}")


def _add_folder(contents: Contents, stored: Stored, folder: Folder, path: str, depth: int) -> None:
    found = listing(folder)
    if found.odd:
        contents.left_out["links, pipes and devices"] += len(found.odd)
    for name in sorted(found.files):
        why = _never(stored.store, name, path)
        if why:
            contents.left_out[why] += 1
        elif name.startswith(GROUP) and stored.store in ("triton", "inductor"):
            _add_group(contents, folder, name, path, found.files)
        else:
            _add_file(contents, stored, folder, f"{path}/{name}")
    for name in found.folders if depth else ():
        if _NEVER.fullmatch(name):
            contents.left_out["folders of writers"] += 1
            continue
        with entered(folder, name) as below:
            _add_folder(contents, stored, below, f"{path}/{name}", depth - 1)


def _never(store: str, name: str, path: str) -> str | None:
    if _NEVER.fullmatch(name):
        return "locks and temporary files"
    if store in _BUILT_BY_NINJA and _NINJAS.fullmatch(name) and not path.endswith(CUTE):
        return "ninja's files and objects: of no use in another place"
    return None


def _add_file(contents: Contents, stored: Stored, folder: Folder, path: str) -> None:
    name = path.rpartition("/")[2]
    contents.add(path, Source(folder.path, stored.root, name))
    match = OBJECT.fullmatch(name) if stored.store == "cute-dsl" else None
    if match:  # a lookup opens the lock, and cannot create it in a read-only folder
        contents.add(f"{path.rpartition('/')[0]}/{match[1]}.lock", Source(folder.path, stored.root, "", b""))


def _add_group(contents: Contents, folder: Folder, name: str, path: str, there: Collection[str]) -> None:
    try:
        content = json.dumps(group_at(read_json(folder, name), f"{contents.at}/{path}", there)).encode()
    except (OSError, ValueError):
        contents.left_out["groups of kernels that name other files than are there"] += 1
    else:
        contents.add(f"{path}/{name}", Source(folder.path, folder.path, name, content))


def _add_offer(contents: Contents, taken: Sequence[Item], folder: Folder) -> None:
    """Add the package that offers FlashInfer its modules, with the content that a relocation writes."""
    offer = offer_of(taken, folder)
    if offer["modules"]:
        below = os.path.relpath(BY_ID["flashinfer-jit"].folder, OFFER_PACKAGE)
        for path in OFFERS:
            name = path.rpartition("/")[2]
            contents.add(path, Source(folder.path, folder.path, name, package_files(offer, below)[name]))
