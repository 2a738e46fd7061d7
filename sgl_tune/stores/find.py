"""The readers of all kinds of stores, and the search for stores below a folder by their contents."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from sgl_tune.cache.folder import Folder, entered, open_folder
from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.stores.item import Budget, Item, Listing, OnError, Setting, listing, setting_here, size_of
from sgl_tune.stores.readers.flashinfer import NAME as CUBINS
from sgl_tune.stores.readers.flashinfer import FlashInferCubins, FlashInferModules, HostHalves
from sgl_tune.stores.readers.moe_configs import MoeConfigs
from sgl_tune.stores.readers.objects import CuteDsl, DeepGemm, TileLang
from sgl_tune.stores.readers.triton import Inductor, Triton
from sgl_tune.stores.readers.tvm_ffi import TvmFfi
from sgl_tune.stores.rows import AOT_PACKAGE, BY_ID

TACTICS = "tactics"
_DEEPEST = 5
_MOST_FOLDERS = 20_000
_TOO_MANY = "more folders than are looked into: name the root of the stores itself"
_NOT_STORES = ("autotune", "model_streamer", "ple", "rust_extensions", AOT_PACKAGE)


class Driver:
    store = "driver"

    def is_one(self, folder: Folder, found: Listing) -> bool:
        return folder.path.name in ("ComputeCache", "nv") and ("index" in found.files or bool(found.folders))

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]:
        size = size_of(folder)
        if size.files:
            yield Item(self.store, ".", folder.path, size)


class Reader(Protocol):
    @property
    def store(self) -> str: ...

    def is_one(self, folder: Folder, found: Listing) -> bool:
        """Whether a folder of unknown name is a store of this reader's kind."""
        ...

    def items(self, folder: Folder, setting: Setting) -> Iterator[Item]: ...


READERS: tuple[Reader, ...] = (
    FlashInferModules(),
    FlashInferCubins(),
    HostHalves(),
    Triton(),
    Inductor(),
    DeepGemm(),
    CuteDsl(),
    TileLang(),
    TvmFfi(),
    MoeConfigs(),
    Driver(),
)
BY_STORE = {reader.store: reader for reader in READERS}
STORE_IDS = tuple(id for id in BY_ID if id in BY_STORE)


class Stored(NamedTuple):
    """One store on this disk. `root`: the folder that the user named; links below it are not followed."""

    store: str
    path: Path
    root: Path

    def seen_at(self, place: str | None, root: Path | None = None) -> str:
        """Return the store's path where its root, or `root`, is found at `place`. Without one its own: links
        stay, because no library resolves a path."""
        if place is None:
            return str(self.path.absolute())
        below = self.path.relative_to(root or self.root).as_posix()
        return place if below == "." else f"{place.rstrip('/')}/{below}"

    def items(self, setting: Setting | None = None) -> Iterator[Item]:
        """Yield the store's items; raise OSError if its folder cannot be read."""
        with open_folder(self.path, self.root) as folder:
            yield from BY_STORE[self.store].items(folder, setting or setting_here(self.path, looks=False))


def find_stores(root: Path, on_error: OnError, only: str | None = None) -> list[Stored]:
    """Return every store at or below `root`. `only`: this store alone; if none is found, `root`
    is taken for it."""
    try:
        with open_folder(root, root) as folder:
            budget = Budget(_MOST_FOLDERS, _TOO_MANY, on_error)
            found = list(_below(folder, root, _DEEPEST, budget, on_error))
    except OSError as error:
        on_error(error)
        return []
    if only and not any(stored.store == only for stored in found):
        return [Stored(only, root, root)]
    return [stored for stored in found if only in (None, stored.store)]


def stores_below(out: Output, folder: Path, only: str | None = None) -> list[Stored]:
    return find_stores(folder, lambda error: out.warn(f"{error.filename}: {error.strerror}"), only)


def store_asked_for(name: str | None) -> str | None:
    """Return the store to show, or None for the rank files, which commands show without --store."""
    if name is not None and name not in (*STORE_IDS, TACTICS, "all"):
        known = ", ".join((*STORE_IDS, TACTICS))
        raise UsageError(f"--store {name}: there is no such store", f"one of {known}, or all")
    return None if name == TACTICS else name


def _below(folder: Folder, root: Path, depth: int, budget: Budget, on_error: OnError) -> Iterator[Stored]:
    found = listing(folder)
    store = next((reader.store for reader in READERS if reader.is_one(folder, found)), None)
    if store:
        yield Stored(store, folder.path, root)
        if store == "flashinfer-jit" and CUBINS in found.folders:
            yield Stored("flashinfer-cubins", folder.path / CUBINS, root)
        return
    for name in found.folders if depth else ():
        if name in _NOT_STORES or not budget.takes_one(folder):
            continue
        try:
            with entered(folder, name) as below:
                yield from _below(below, root, depth - 1, budget, on_error)
        except OSError as error:
            on_error(error)
