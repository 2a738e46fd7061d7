"""Scanned caches in plain tuples without paths, which take longest to hand from a process to another: names
below the folder of a cache, and places among its files, stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from sgl_tune.cache.layouts import Cache, RankFile
from sgl_tune.cache.layouts.search import Branch, Found
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.scanned import Content, ScannedCache, ScannedFile

Answer = ScannedCache | OSError
Told = tuple[Any, ...]
_ERROR = "error"
_NONE: tuple[tuple[str, ...], ...] = ((), (), ())


def told(item: Found, answers: Sequence[Answer]) -> list[Told]:
    """A cache that is itself the item is known to who hears of it."""
    folder = item.folder if isinstance(item, Branch) else None
    return [_error(one) if isinstance(one, OSError) else _scanned(folder, one) for one in answers]


def heard(item: Found, told: Sequence[Told]) -> list[Answer]:
    return [OSError(*one[1:]) if one[0] == _ERROR else _heard_scanned(item, one) for one in told]


def _error(error: OSError) -> Told:
    return _ERROR, error.errno, error.strerror, str(error.filename)


def _scanned(folder: Path | None, scanned: ScannedCache) -> Told:
    cache, contents, manifest = scanned.cache, scanned.contents, scanned.manifest
    places = {id(file.path): place for place, file in enumerate(cache.files)}
    which = {id(content): place for place, content in enumerate(contents)}
    return (
        _cache(folder, cache) if folder else None,
        [
            (places[id(file.path)], file.bytes, file.modified, which[id(file.content)], file.digest)
            for file in scanned.files
        ],
        [(one.entries, one.environment, one.generation, one.problem) for one in contents],
        vars(manifest) if manifest else None,
        (scanned.manifest_problem, scanned.environment),
    )


def _heard_scanned(item: Found, told: Told) -> ScannedCache:
    place, scanned, distinct, manifest, (problem, environment) = told
    cache = _heard_cache(item, place) if isinstance(item, Branch) else cast(Cache, item)
    first = {which: place for place, _, _, which, _ in reversed(scanned)}
    contents = [
        Content(
            cache.files[first[which]].path, cache.layout, entries, environment, generation, what, cache.root
        )
        for which, (entries, environment, generation, what) in enumerate(distinct)
    ]
    files = []
    for place, size, modified, which, digest in scanned:
        path, rank = cache.files[place]
        files.append(ScannedFile(path, rank, size, modified, contents[which], digest))
    ours = _heard_manifest(manifest) if manifest else None
    return ScannedCache(cache, tuple(files), ours, problem, environment)


def _cache(folder: Path, cache: Cache) -> Told:
    depth = len(cache.path.parts)

    def name(path: Path) -> str:
        return "/".join(path.parts[depth:])

    lists = cache.leftovers, cache.runs, cache.broken
    return (
        "/".join(cache.path.parts[len(folder.parts) :]),
        (cache.layout, cache.flashinfer, cache.arch, cache.key),
        [(name(file.path), file.rank is not None) for file in cache.files],
        [[name(path) for path in paths] for paths in lists] if any(lists) else _NONE,
        name(cache.manifest) if cache.manifest else None,
    )


def _heard_cache(branch: Branch, told: Told) -> Cache:
    below, (layout, flashinfer, arch, key), names, lists, manifest = told
    path = branch.folder / below if below else branch.folder
    files = [RankFile(path / name, RankName.parse(name) if is_rank else None) for name, is_rank in names]
    leftovers, runs, broken = (tuple([path / name for name in names]) for names in lists)
    ours = path / manifest if manifest else None
    return Cache(
        path, layout, flashinfer, arch, key, tuple(files), leftovers, runs, broken, ours, branch.root
    )


def _heard_manifest(told: Mapping[str, Any]) -> Any:
    from sgl_tune.cache.manifest import Manifest

    return Manifest(**told)
