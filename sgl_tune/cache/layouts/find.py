"""Find the caches that a user means: below a folder, around a file, or by a prefix of a key."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cache.disk import kind_of
from sgl_tune.cache.folder import Way
from sgl_tune.cache.layouts.cache import KEY, MANIFEST, SHORTEST_KEY, Cache, RankFile
from sgl_tune.cache.layouts.readers import LAYOUTS, OnError, list_folder, list_on, read_cache
from sgl_tune.cache.rank_names import RankName
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import SglTuneError, UsageError, WorkFailed

_DEEPEST = 8


def _unreadable(error: OSError) -> None:
    raise WorkFailed(
        f"{error.filename}: {error.strerror}", "run as the user who owns the cache, or name the folder itself"
    )


def find_caches(
    root: Path, on_error: OnError = _unreadable, named: Path | None = None, skip: Collection[Path] = ()
) -> list[Cache]:
    """Return every cache at or below `root`: any folder of a layout, or one of its files. `named`: the
    folder that the user named; links are followed only down to it. `skip`: folders that have no caches."""
    root = Path(root)
    if root.is_file():
        return [_around(root.resolve() if root.is_symlink() else root, on_error)]
    if not root.is_dir():
        what = f"{kind_of(root)}, no cache" if root.exists() else "no such file or folder"
        raise UsageError(f"{root}: {what}", "see `sgl-tune inspect` for the caches there are")
    named = named or root
    layouts = [root / name for layout in LAYOUTS.values() for name in layout.roots if (root / name).is_dir()]
    with Way() as way:
        walk = _Walk(named, frozenset(skip), way, on_error)
        caches = [cache for start in layouts or [root] for cache in walk.below(start)]
    return caches or _loose(root, named, on_error if layouts else lambda error: None)


def caches_open(root: Path, named: Path | None = None) -> list[Cache]:
    """Return the caches there. Skip what cannot be opened: a server could not open it either."""
    return find_caches(root, lambda error: None, named) if root.is_dir() else []


class _Walk(NamedTuple):
    named: Path
    skip: frozenset[Path]
    way: Way
    on_error: OnError

    def below(self, folder: Path, depth: int = _DEEPEST) -> Iterator[Cache]:
        """Yield the cache in this folder, or else the caches below it."""
        listing = list_on(self.way, folder, self.named, self.on_error)
        if folder in self.skip:
            return
        cache = read_cache(listing, self.on_error)
        if cache:
            yield cache._replace(root=self.named)
        elif depth:
            for name in listing.folders:
                yield from self.below(folder / name, depth - 1)


def _loose(root: Path, named: Path, on_error: OnError) -> list[Cache]:
    """Return the JSON files of a folder without a known layout as one cache."""
    listing = list_folder(root, named, on_error)
    files = [name for name in listing.files if name.endswith(".json") and name != MANIFEST]
    ranks = tuple(RankFile(path, None) for path in listing.paths(files))
    return [Cache(listing.folder, "files", files=ranks, root=named)] if files else []


def resolve(
    target: str | None, cache_dir: Path, on_error: OnError = _unreadable, skip: Collection[Path] = ()
) -> list[Cache]:
    """Return the caches that the target names: None (the cache directory), a path, or a prefix of a key."""
    place = place_meant(target, cache_dir)
    return find_caches(place, on_error, skip=skip) if place else keyed(target or "", cache_dir, on_error)


def place_meant(target: str | None, cache_dir: Path) -> Path | None:
    """Return the path that the target names, or None if it is a prefix of a key."""
    if target is not None:
        return Path(target) if os.path.lexists(target) else None
    if cache_dir.exists() and not cache_dir.is_dir():
        raise UsageError(f"--cache-dir {cache_dir}: {kind_of(cache_dir)}, not a folder", "name a folder")
    if not cache_dir.is_dir():
        raise UsageError(
            f"{cache_dir}: no cache directory yet",
            "name another folder with --cache-dir, or fill it: sgl-tune warm -f deployment.yaml",
        )
    return cache_dir


def keyed(target: str, cache_dir: Path, on_error: OnError) -> list[Cache]:
    """Return the caches whose keys begin with the target."""
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


def _around(path: Path, on_error: OnError) -> Cache:
    """Return the cache that a file belongs to, with only this file in it."""
    for folder in (path.parent, path.parent.parent):
        cache = read_cache(list_folder(folder, folder, on_error), on_error)
        if cache:
            mine = [file for file in cache.files if file.path == path]
            if mine:
                return cache._replace(files=tuple(mine), leftovers=(), runs=())
    return Cache(path.parent, "files", files=(RankFile(path, RankName.parse(path.name)),))


def keys(ctx: Any) -> list[str]:
    """Return the existing caches' keys, for shell completion."""
    given = ctx.params.get("cache_dir")  # still text during completion
    root = Path(given) if given else default_cache_dir()
    try:
        found = resolve(None, root, on_error=lambda error: None)
    except (OSError, SglTuneError):
        return []
    return sorted({cache.key for cache in found if cache.key})
