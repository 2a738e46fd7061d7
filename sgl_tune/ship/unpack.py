"""Unpack a bundle. All of it is checked in a staging folder before any file comes where a server looks."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sgl_tune.cache.folder import Owner, open_folder
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.transaction import explained, locked
from sgl_tune.processes.scratch import Scratch, scratch
from sgl_tune.ship.archive import opened
from sgl_tune.ship.landing import Landed, check_landed, check_way, land_stores, missing_folders, remove_empty
from sgl_tune.ship.landing_tactics import LandedCache, foreseen, land_cache
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.signing.signature import Guard, Verdict
from sgl_tune.ship.staging import Rekeyed, Staged, Staging, rekeyed, said_of
from sgl_tune.stores.find import Stored
from sgl_tune.stores.prune import sweep
from sgl_tune.stores.relocate import Mended, relocate
from sgl_tune.stores.rows import BY_ID

_FLASHINFER = "flashinfer-jit"
Progress = Callable[[int], None]
Say = Callable[[str], None]
Judge = Callable[[Path, BundleManifest], None]


@dataclass(frozen=True)
class How:
    """How to unpack. `place`: where the server will find the folder."""

    root: Path
    place: str
    replace: bool = False
    rekey: tuple[str, ...] = ()
    guard: Guard = field(default_factory=Guard)
    owner: Owner | None = None
    dry_run: bool = False


@dataclass(frozen=True)
class Unpacked:
    manifest: BundleManifest
    digest: str
    trust: Verdict
    staged: Staged
    changes: tuple[Rekeyed, ...]
    caches: tuple[LandedCache, ...]
    stores: Landed
    mended: tuple[Mended, ...]


def unpack(
    bundle: Path,
    how: How,
    progress: Progress,
    say: Say,
    judge: Judge = lambda folder, manifest: None,
    called: str | None = None,
    hashed: Progress = lambda there: None,
) -> Unpacked:
    """Unpack a bundle. `judge`: gets the staged folder after all checks, and may refuse it."""
    with _closed_to_others(), opened(bundle, how.guard.check, called=called, hashed=hashed) as found:
        manifest = found.archive.manifest
        trust = how.guard.judge(found.checked, manifest)
        changes = tuple(rekeyed(manifest, how.rekey))
        with _staging_folder(how) as folder:
            staged = Staging(folder, how.place, changes, how.owner).take(found.archive, progress)
            judge(folder, manifest)
            check_way(folder, how.root)
            caches = find_caches(folder) if manifest.caches else []
            tactics = tuple(foreseen(cache, folder, how.root, how.replace) for cache in caches)
            if how.dry_run:
                return Unpacked(manifest, found.digest, trust, staged, changes, tactics, Landed(), ())
            landed, stores, mended = _land(caches, folder, manifest, how, say)
            check_landed(staged.files, how.root)
        return Unpacked(manifest, found.digest, trust, staged, changes, landed, stores, mended)


@contextlib.contextmanager
def _closed_to_others() -> Iterator[None]:
    """Make new files unwritable for others whatever the umask: a writer can run code in the server."""
    before = os.umask(0)
    os.umask(before | stat.S_IWOTH)
    try:
        yield
    finally:
        os.umask(before)


def _land(
    caches: Sequence[Cache], folder: Path, manifest: BundleManifest, how: How, say: Say
) -> tuple[tuple[LandedCache, ...], Landed, tuple[Mended, ...]]:
    with contextlib.ExitStack() as held:
        if manifest.stores:  # caches have their own locks
            os.sync()  # the files' content reaches the disk before their names do
            held.enter_context(locked(how.root, say=say, root=how.root, owner=how.owner))
        landed = tuple(land_cache(cache, folder, how.root, how.replace, how.owner, say) for cache in caches)
        stores = land_stores(folder, how.root, how.replace, how.owner)
        return landed, stores, tuple(_offered(manifest, how))


def _offered(manifest: BundleManifest, how: How) -> Iterator[Mended]:
    """Yield the new offer of all FlashInfer modules, those of the bundle and those that were there."""
    stored = Stored(_FLASHINFER, how.root / BY_ID[_FLASHINFER].folder, how.root)
    if all(row.store != _FLASHINFER for row in manifest.stores) or not stored.path.is_dir():
        return
    place = f"{how.place}/{BY_ID[_FLASHINFER].folder}"
    mended = relocate(stored, place, False, lambda: None, how.owner)
    if mended:
        yield mended


@contextlib.contextmanager
def _staging_folder(how: How) -> Iterator[Path]:
    """Yield a staging folder, on the file system where files land for a rename (not in a dry run)."""
    if how.dry_run:
        with scratch() as place, _named(place) as folder:
            yield folder
        return
    root = how.root.absolute()
    missing = missing_folders(root)
    try:
        with explained(root):
            there = missing[-1].parent if missing else root
            open_folder(root, there, create=True, owner=how.owner).__exit__()
        sweep(root, False, lambda error: None, deep=False)
        with explained(how.root), scratch(how.root) as place, _named(place) as folder:
            yield folder
    except BaseException:
        remove_empty(missing)
        raise


@contextlib.contextmanager
def _named(place: Scratch) -> Iterator[Path]:
    """Yield a path that leads to this exact folder, even if its name is changed; errors print the name."""
    held = Path(f"/proc/self/fd/{place.descriptor}")
    with said_of(place.folder, held):
        yield held
