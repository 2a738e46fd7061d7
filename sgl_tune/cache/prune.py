"""Plan what to remove from the disk, and why. Nothing is removed here."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TypeVar

from runtime.flashinfer.versions import number
from sgl_tune.cache.folder import Signature, signature_of
from sgl_tune.cache.layouts.cache import LOCK, MANIFEST, Cache, is_unfinished
from sgl_tune.cache.manifest import BrokenManifest, read_manifest
from sgl_tune.errors import UsageError
from sgl_tune.units import count, human_age

T = TypeVar("T")
WRITING_SECONDS = 600.0  # a save takes ms: the writer of an older temporary file is dead


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a prune, which must all hold. `max_size`: then the least recently used beyond it go."""

    stale: bool = False
    older_than: float | None = None
    flashinfer: str | None = None
    arch: str | None = None
    max_size: int | None = None
    keep: tuple[str, ...] = ()
    key: str = ""  # a prefix of the named key
    unusable: Callable[[Cache], Iterable[Path]] | None = None  # remove only these files

    @property
    def choose_nothing(self) -> bool:
        """Whether no rule chooses anything. A version or an architecture only narrows other rules."""
        return (
            not (self.key or self.stale or self.unusable)
            and self.older_than is None
            and self.max_size is None
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """A whole cache, or only some files in it. `seen`: the files' signatures when this was planned."""

    cache: Cache
    whole: bool
    seen: Mapping[Path, Signature]
    bytes: int
    last_used: float
    reason: str

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self.seen)


def plan(caches: Sequence[Cache], rules: Rules, now: float) -> list[Removal]:
    ours = [cache for cache in caches if cache.layout != "files"]  # loose files belong to no cache
    for key in rules.keep:
        if not any(_has_key(cache, key) for cache in ours):
            raise UsageError(f"--keep {key}: no cache here has this key", "`sgl-tune inspect` lists them")
    # Empty folders do not count, because they replace nothing.
    newest = newest_versions((kin(cache), cache.flashinfer) for cache in ours if cache.files)
    considered = [
        _consider(cache, rules, now, newest.get(kin(cache)))
        for cache in ours
        if not any(_has_key(cache, key) for key in rules.keep)
        and (not rules.key or _has_key(cache, rules.key))
        and rules.flashinfer in (None, cache.flashinfer)
        and rules.arch in (None, cache.arch)
    ]
    removals = [removal for removal in considered if removal]
    if rules.max_size is None:
        return removals
    excess = sum(_size(belongings(cache)) for cache in ours) - rules.max_size
    return until_it_fits(removals, excess, lambda one: (one.last_used, one.bytes))


def _has_key(cache: Cache, key: str) -> bool:
    return bool(cache.key and cache.key.startswith(key))


def _consider(cache: Cache, rules: Rules, now: float, newest: str | None) -> Removal | None:
    files = belongings(cache)
    if rules.unusable:
        before = inf if rules.older_than is None else now - rules.older_than
        return _harmful(cache, rules.unusable, last_used(cache, files), before)
    used = last_used(cache, files)
    old_enough = now - used >= (rules.older_than or 0.0)
    if not rules.stale:
        named = "its key was named" if rules.key and rules.older_than is None else ""
        reason = named or f"last used {ago(now - used)}" if old_enough else None
    elif old_enough and newest and cache.flashinfer and number(cache.flashinfer) < number(newest):
        reason = f"FlashInfer {newest} is here too"
    elif _is_abandoned(cache, now - used):
        reason = "empty"
    else:
        return _litter(cache, used, now, max(rules.older_than or 0.0, WRITING_SECONDS))
    return Removal(cache, True, _signatures(files), _size(files), used, reason) if reason else None


def _is_abandoned(cache: Cache, age: float) -> bool:
    """Whether a cache has no files and is abandoned. A server makes its folder long before it saves; our
    lock file shows that the cache was emptied."""
    if cache.files or cache.runs or cache.leftovers:
        return False
    return age >= WRITING_SECONDS or (cache.path / LOCK).exists()


def _litter(cache: Cache, used: float, now: float, age: float) -> Removal | None:
    runs = [path for path in cache.runs if now - _modified(path) >= age]
    dead = [path for path in cache.leftovers if now - _modified(path) >= age and not is_unfinished(path.name)]
    if not runs and not dead:
        return None
    said = [count(len(runs), "finished run")] if runs else []
    said += [count(len(dead), "file") + " of dead writers"] if dead else []
    litter = [*runs, *dead]
    return Removal(cache, False, _signatures(litter), _size(litter), used, ", ".join(said))


def _harmful(
    cache: Cache, unusable: Callable[[Cache], Iterable[Path]], used: float, before: float
) -> Removal | None:
    """Return the unusable files. Signatures are taken before judging: a file written meanwhile stays."""
    seen = _signatures(file.path for file in cache.files if _modified(file.path) <= before)
    bad = {path: seen[path] for path in unusable(cache) if path in seen}
    if not bad:
        return None
    return Removal(cache, False, bad, _size(bad), used, f"{count(len(bad), 'file')} that no server can use")


def until_it_fits(found: Iterable[T], excess: int, used: Callable[[T], tuple[float, int]]) -> list[T]:
    """Return the least recently used, until they have the excess. `used`: when it was used, and its bytes."""
    chosen = []
    for one in sorted(found, key=lambda one: used(one)[0]):
        if excess <= 0:
            break
        chosen.append(one)
        excess -= used(one)[1]
    return chosen


def newest_versions(found: Iterable[tuple[T, str | None]]) -> dict[T, str]:
    newest: dict[T, str] = {}
    for what, version in found:
        if version and number(version) > number(newest.get(what, "")):
            newest[what] = version
    return newest


def ago(seconds: float) -> str:
    age = human_age(seconds)
    return "just now" if age == "now" else f"{age} ago"


def kin(cache: Cache) -> tuple[str, str | None]:
    """Return what a cache shares with those for other versions of FlashInfer."""
    return cache.layout, cache.arch


def belongings(cache: Cache) -> tuple[Path, ...]:
    """Return every file of the cache except our lock. Other files in the folder are not ours."""
    manifest = (cache.manifest,) if cache.manifest else ()
    return (*(file.path for file in cache.files), *cache.leftovers, *cache.runs, *manifest, *cache.broken)


def last_used(cache: Cache, files: Iterable[Path]) -> float:
    """Return the time of the last write, since servers save at every start, or the manifest's if later."""
    times = [_modified(path) for path in files] or [_modified(cache.path)]
    if cache.manifest and cache.manifest.name == MANIFEST:
        with contextlib.suppress(BrokenManifest, ValueError):
            times.append(
                datetime.fromisoformat(read_manifest(cache.manifest, cache.root).created or "").timestamp()
            )
    return max(times)


def _modified(path: Path) -> float:
    return status.st_mtime if (status := _status(path)) else 0.0


def _signatures(files: Iterable[Path]) -> dict[Path, Signature]:
    there = ((path, status) for path in files if (status := _status(path)))
    return {path: signature_of(status) for path, status in there if not stat.S_ISDIR(status.st_mode)}


def _size(files: Iterable[Path]) -> int:
    return sum(size for _, size, _ in _signatures(files).values())


def _status(path: Path) -> os.stat_result | None:
    """Return a file's status; of a link, the link's own, because its target is not part of the cache."""
    try:
        return path.lstat()
    except OSError:
        return None
