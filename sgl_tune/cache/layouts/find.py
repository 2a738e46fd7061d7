"""The caches that a user means: below a folder, around a file, or by the beginning of a key."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from sgl_tune.cache.disk import kind_of
from sgl_tune.cache.folder import Way
from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.known import LAYOUTS, read_cache
from sgl_tune.cache.layouts.listing import Listing, OnError, list_folder, list_on
from sgl_tune.cache.layouts.names import KEY, MANIFEST, SHORTEST_KEY
from sgl_tune.cache.rank_names import RankName
from sgl_tune.errors import UsageError, WorkFailed

_DEEPEST = 8


def _unreadable(error: OSError) -> None:
    raise WorkFailed(
        f"{error.filename}: {error.strerror}", "run as the user who owns the cache, or name the folder itself"
    )


def find_caches(
    root: Path,
    on_error: OnError = _unreadable,
    named: Path | None = None,
    skip: Collection[Path] = (),
) -> list[Cache]:
    """Every cache at or below `root`, which may be any folder of a layout, or one file of it. A user `named`
    it, or a folder above it: links are followed up to there. Folders to `skip` are known to hold none."""
    root = Path(root)
    if root.is_file():
        return [_around(root.resolve() if root.is_symlink() else root, on_error)]
    if not root.is_dir():
        what = f"{kind_of(root)}, no cache" if root.exists() else "no such file or folder"
        raise UsageError(f"{root}: {what}", "see `sgl-tune inspect` for the caches there are")
    named = named or root
    roots = [name for layout in LAYOUTS.values() for name in layout.roots]
    known = [list_folder(root / name, named, on_error) for name in roots if (root / name).is_dir()]
    starts = known or [list_folder(root, named, on_error)]
    with Way() as way:
        caches = [cache for start in starts for cache in _walk(start, way, on_error, _DEEPEST, skip)]
    caches = caches or _loose(list_folder(root, named, on_error) if known else starts[0])
    return [cache._replace(root=named) for cache in caches]


def resolve(
    target: str | None, cache_dir: Path, on_error: OnError = _unreadable, skip: Collection[Path] = ()
) -> list[Cache]:
    """What a user meant: nothing (the cache directory), a path, or the beginning of a key in it."""
    if target is None:
        if cache_dir.exists() and not cache_dir.is_dir():
            raise UsageError(f"--cache-dir {cache_dir}: {kind_of(cache_dir)}, not a folder", "name a folder")
        if not cache_dir.is_dir():
            raise UsageError(
                f"{cache_dir}: no cache directory yet", "`sgl-tune warm` makes one, or pass --cache-dir"
            )
        return find_caches(cache_dir, on_error, skip=skip)
    if os.path.lexists(target):
        return find_caches(Path(target), on_error, skip=skip)
    if 0 < len(target) < SHORTEST_KEY and all(letter in "0123456789abcdef" for letter in target):
        raise UsageError(
            f"{target}: no such file or folder, and too short for the beginning of a key",
            f"at least {SHORTEST_KEY} characters of it; `sgl-tune inspect` lists the keys",
        )
    found = []
    if KEY.fullmatch(target) and cache_dir.is_dir():
        found = [c for c in find_caches(cache_dir, on_error) if c.key and c.key.startswith(target)]
    if not found:
        raise UsageError(
            f"{target}: no such file or folder, and no key in {cache_dir} begins so",
            "`sgl-tune inspect` lists the keys; --cache-dir names another cache",
        )
    return found


def _walk(
    listing: Listing, way: Way, on_error: OnError, depth: int, skip: Collection[Path]
) -> Iterator[Cache]:
    if skip and listing.folder in skip:
        return
    cache = read_cache(listing, on_error)
    if cache:
        yield cache
    elif depth:
        for name in listing.folders:
            below = list_on(way, listing.folder / name, listing.root, on_error)
            yield from _walk(below, way, on_error, depth - 1, skip)


def _loose(listing: Listing) -> list[Cache]:
    """A folder in no layout: whatever JSON files the user put there."""
    files = [name for name in listing.files if name.endswith(".json") and name != MANIFEST]
    if not files:
        return []
    return [
        Cache(listing.folder, "files", files=tuple(RankFile(path, None) for path in listing.paths(files)))
    ]


def _around(path: Path, on_error: OnError) -> Cache:
    """The cache that one file belongs to, with that file alone in it."""
    for folder in (path.parent, path.parent.parent):
        cache = read_cache(list_folder(folder, folder, on_error), on_error)
        if cache:
            mine = [file for file in cache.files if file.path == path]
            if mine:
                return cache._replace(files=tuple(mine), leftovers=(), runs=())
    return Cache(path.parent, "files", files=(RankFile(path, RankName.parse(path.name)),))
