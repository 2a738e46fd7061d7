"""Where caches live on disk: SGLang's, vLLM's and FlashInfer's managed store, each by one small reader."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import open_folder, read_below
from sgl_tune.cache.rank_names import RankName
from sgl_tune.errors import UsageError, WorkFailed

MANIFEST = "sgl-tune.json"
VLLM_FILE = "autotune_configs.json"
LOCK = ".sgl-tune.lock"
JOURNAL = ".sgl-tune.journal"
BROKEN = ".broken"
_TEMPORARY = re.compile(r"\.sgl-tune-\d+-[0-9a-f]{8}\.tmp")
_ARCH = re.compile(r"sm\d{2,4}[a-z]?|cpu")
_SHORTEST_KEY = 4
_KEY = re.compile(rf"[0-9a-f]{{{_SHORTEST_KEY},64}}")
_ROOTS = ("flashinfer/autotune", "flashinfer_autotune_cache", "autotune/v2", "v2")
_DEEPEST = 8


class RankFile(NamedTuple):
    path: Path
    rank: RankName | None


class Cache(NamedTuple):
    """One folder that one deployment reads. `runs` are SGLang's results of starts that were told to reuse
    nothing; `leftovers` are the temporary files of writers, most of them dead; `broken` are rank files that a
    write of ours set aside."""

    path: Path
    layout: str
    flashinfer: str | None = None
    arch: str | None = None
    key: str | None = None
    files: tuple[RankFile, ...] = ()
    leftovers: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()
    broken: tuple[Path, ...] = ()
    manifest: Path | None = None
    root: Path | None = None  # what a user named: below it no link is followed

    def groups(self) -> list[tuple[RankFile, ...]]:
        """The files that a server compares byte for byte: a pipeline stage's TP ranks, and under plain
        data parallelism each replica's own."""
        ranked = sorted(((f.rank, f) for f in self.files if f.rank), key=lambda pair: pair[0].order)
        ranks = [rank for rank, _ in ranked]
        replicas = {stage: _is_replicated(ranks, stage) for stage in {rank.pp for rank in ranks}}
        groups: dict[tuple[int, int], list[RankFile]] = {}
        for rank, file in ranked:
            groups.setdefault((rank.pp, rank.dp if replicas[rank.pp] else 0), []).append(file)
        return [tuple(groups[which]) for which in sorted(groups)]


def _is_replicated(ranks: Sequence[RankName], stage: int) -> bool:
    """Under DP attention a TP rank has one DP rank; seen with several, the DP ranks are whole replicas."""
    seen = [(rank.tp, rank.gpu) for rank in ranks if rank.pp == stage]
    return len(set(seen)) < len(seen)


class _Listing(NamedTuple):
    folder: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]
    root: Path

    def paths(self, names: tuple[str, ...] | list[str]) -> tuple[Path, ...]:
        return tuple(self.folder / name for name in names)

    def parents(self, count: int) -> list[str]:
        """The names of the folder and its ancestors, nearest first."""
        here = os.path.abspath(self.folder).split(os.sep)  # noqa: PTH100, PTH206 resolve() follows links
        return (here[::-1] + [""] * count)[:count]


def is_temporary(name: str) -> bool:
    return bool(_TEMPORARY.fullmatch(name))


def is_unfinished(name: str) -> bool:
    """Whether it is part of a write of ours that was cut short, and so is settled with the lock alone."""
    return name == JOURNAL or is_temporary(name)


def _unreadable(error: OSError) -> None:
    raise WorkFailed(
        f"{error.filename}: {error.strerror}", "run as the user who owns the cache, or name the folder itself"
    )


def find_caches(
    root: Path, on_error: Callable[[OSError], None] = _unreadable, named: Path | None = None
) -> list[Cache]:
    """Every cache at or below `root`, which may be any folder of a layout, or one file of it. A user `named`
    it, or a folder above it: links are followed up to there."""
    root = Path(root)
    if root.is_file():
        return [_around(root.resolve() if root.is_symlink() else root, on_error)]
    if not root.is_dir():
        what = "is neither a file nor a folder" if root.exists() else "no such file or folder"
        raise UsageError(f"{root}: {what}", "see `sgl-tune inspect` for the caches there are")
    named = named or root
    known = [_list(root / name, named, on_error) for name in _ROOTS if (root / name).is_dir()]
    starts = known or [_list(root, named, on_error)]
    caches = [cache for start in starts for cache in _walk(start, on_error, _DEEPEST)]
    caches = caches or _loose(_list(root, named, on_error) if known else starts[0])
    return [cache._replace(root=named) for cache in caches]


def resolve(
    target: str | None, cache_dir: Path, on_error: Callable[[OSError], None] = _unreadable
) -> list[Cache]:
    """What a user meant: nothing (the cache directory), a path, or the beginning of a key in it."""
    if target is None:
        if not cache_dir.is_dir():
            raise UsageError(
                f"{cache_dir}: no cache directory yet", "`sgl-tune warm` makes one, or pass --cache-dir"
            )
        return find_caches(cache_dir, on_error)
    if os.path.lexists(target):
        return find_caches(Path(target), on_error)
    if 0 < len(target) < _SHORTEST_KEY and all(letter in "0123456789abcdef" for letter in target):
        raise UsageError(
            f"{target}: no such file or folder, and too short for the beginning of a key",
            f"at least {_SHORTEST_KEY} characters of it; `sgl-tune inspect` lists the keys",
        )
    found = []
    if _KEY.fullmatch(target) and cache_dir.is_dir():
        found = [c for c in find_caches(cache_dir, on_error) if c.key and c.key.startswith(target)]
    if not found:
        raise UsageError(
            f"{target}: no such file or folder, and no key in {cache_dir} begins so",
            "`sgl-tune inspect` lists the keys; --cache-dir names another cache",
        )
    return found


def _walk(listing: _Listing, on_error: Callable[[OSError], None], depth: int) -> Iterator[Cache]:
    cache = _read(listing, on_error)
    if cache:
        yield cache
    elif depth:
        for name in listing.folders:
            below = _list(listing.folder / name, listing.root, on_error)
            yield from _walk(below, on_error, depth - 1)


def _list(folder: Path, root: Path, on_error: Callable[[OSError], None]) -> _Listing:
    """One folder's names. Links to folders are not followed: they may lead in circles or out of it."""
    files, folders = [], []
    try:
        with open_folder(folder, root) as opened, os.scandir(opened.descriptor) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif not entry.is_dir():
                    files.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it vanished while we walked
    except OSError as error:
        on_error(error)
    return _Listing(folder, tuple(sorted(files)), tuple(sorted(folders)), root)


def _read(listing: _Listing, on_error: Callable[[OSError], None]) -> Cache | None:
    return _read_sglang(listing, on_error) or _read_vllm(listing) or _read_managed(listing, on_error)


def _read_sglang(listing: _Listing, on_error: Callable[[OSError], None]) -> Cache | None:
    key, arch, version = listing.parents(3)
    placed = bool(_ARCH.fullmatch(arch) and _KEY.fullmatch(key) and VLLM_FILE not in listing.files)
    ranks = [(name, rank) for name in listing.files if (rank := RankName.parse(name))]
    if not ranks and not placed:
        return None
    files = (
        RankFile(listing.folder / name, rank) for name, rank in sorted(ranks, key=lambda pair: pair[1].order)
    )
    runs = _list(listing.folder / "runs", listing.root, on_error) if "runs" in listing.folders else None
    leftovers = listing.paths(_temporary(listing)) + (runs.paths(_temporary(runs)) if runs else ())
    return Cache(
        listing.folder,
        "sglang",
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key if placed else None,
        files=tuple(files),
        leftovers=leftovers,
        runs=runs.paths([name for name in runs.files if name.endswith(".json")]) if runs else (),
        broken=listing.paths([name for name in listing.files if _is_set_aside(name)]),
        manifest=listing.folder / MANIFEST if MANIFEST in listing.files else None,
    )


def _read_vllm(listing: _Listing) -> Cache | None:
    """vLLM omits version and architecture when its cache directory is set by the user."""
    if VLLM_FILE not in listing.files:
        return None
    key, arch, version, root = listing.parents(4)
    placed = root == "flashinfer_autotune_cache"
    return Cache(
        listing.folder,
        "vllm",
        flashinfer=version if placed else None,
        arch=arch if placed else None,
        key=key,
        files=(RankFile(listing.folder / VLLM_FILE, None),),
        leftovers=listing.paths(_temporary(listing)),
    )


def _read_managed(listing: _Listing, on_error: Callable[[OSError], None]) -> Cache | None:
    """FlashInfer's managed store: one file an entry, in a folder named after the environment's hash."""
    key, schema = listing.parents(2)
    manifest = listing.folder / "manifest.json"
    if "entries" not in listing.folders or not (schema == "v2" or manifest.name in listing.files):
        return None
    entries = _list(listing.folder / "entries", listing.root, on_error)
    files = [name for name in entries.files if name.endswith(".json")]
    environment = _managed_environment(manifest, listing.root)
    return Cache(
        listing.folder,
        "flashinfer-v2",
        flashinfer=environment.get("flashinfer_version"),
        arch=environment.get("gpu"),  # the store knows GPUs by name only
        key=key,
        files=tuple(RankFile(path, None) for path in entries.paths(files)),
        leftovers=listing.paths(_temporary(listing)) + entries.paths(_temporary(entries)),
        manifest=manifest if manifest.name in listing.files else None,
    )


def _managed_environment(manifest: Path, root: Path) -> dict[str, str]:
    try:
        content = json.loads(read_below(manifest, root))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if isinstance(value, str)}


def _is_set_aside(name: str) -> bool:
    return name.endswith(BROKEN) and RankName.parse(name.removesuffix(BROKEN)) is not None


def _temporary(listing: _Listing) -> list[str]:
    return [name for name in listing.files if name.startswith(".") and name.endswith((".tmp", ".journal"))]


def _loose(listing: _Listing) -> list[Cache]:
    """A folder in no layout: whatever JSON files the user put there."""
    files = [name for name in listing.files if name.endswith(".json") and name != MANIFEST]
    if not files:
        return []
    return [
        Cache(listing.folder, "files", files=tuple(RankFile(path, None) for path in listing.paths(files)))
    ]


def _around(path: Path, on_error: Callable[[OSError], None]) -> Cache:
    """The cache that one file belongs to, with that file alone in it."""
    for folder in (path.parent, path.parent.parent):
        cache = _read(_list(folder, folder, on_error), on_error)
        if cache:
            mine = [file for file in cache.files if file.path == path]
            if mine:
                return cache._replace(files=tuple(mine), leftovers=(), runs=())
    return Cache(path.parent, "files", files=(RankFile(path, RankName.parse(path.name)),))
