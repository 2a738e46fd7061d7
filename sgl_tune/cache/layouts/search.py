"""A search for caches below folders, in steps of one folder each, which several processes may share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from sgl_tune.cache.folder import Way
from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.known import LAYOUTS, read_cache
from sgl_tune.cache.layouts.listing import OnError, list_folder, list_on
from sgl_tune.cache.layouts.names import MANIFEST

_DEEPEST = 8
Thing = TypeVar("Thing")


class Branch(NamedTuple):
    """A folder that was not looked into yet, below the one that a user named, and how deep to look."""

    folder: Path
    root: Path
    depth: int = _DEEPEST


Found = Cache | Branch | OSError


class Search(NamedTuple):
    """A user `named` a folder at or above `root`: links are followed up to there. Folders to `skip` are known
    to hold no cache. What could not be looked into stands where a cache from there would."""

    root: Path
    named: Path
    skip: Collection[Path] = ()

    def starts(self) -> list[Branch]:
        return self._of_layouts() or [Branch(self.root, self.named)]

    def look(self, branch: Branch, way: Way) -> Iterator[Found]:
        """The cache that a folder is, or the folders in it."""
        errors: list[OSError] = []
        listing = list_on(way, branch.folder, branch.root, errors.append)
        skipped = bool(self.skip) and branch.folder in self.skip
        cache = None if skipped else read_cache(listing, errors.append)
        yield from errors
        if cache:
            yield cache._replace(root=branch.root)
        elif branch.depth and not skipped:
            for name in listing.folders:
                yield Branch(branch.folder / name, branch.root, branch.depth - 1)

    def caches(self, found: Found, way: Way) -> Iterator[Cache | OSError]:
        if isinstance(found, Branch):
            for below in self.look(found, way):
                yield from self.caches(below, way)
        else:
            yield found

    def branches(self, enough: int) -> list[Found]:
        """In their order, as soon as they are so many, and the caches that were found until then."""
        found: list[Found] = [*self.starts()]
        with Way() as way:
            while 0 < sum(isinstance(one, Branch) for one in found) < enough:
                steps = (self.look(one, way) if isinstance(one, Branch) else (one,) for one in found)
                found = [new for step in steps for new in step]
        return found

    def loose(self, on_error: OnError) -> list[Cache]:
        """Of a folder in no layout: whatever JSON files the user put there."""
        told_already = not self._of_layouts()
        listing = list_folder(self.root, self.named, (lambda error: None) if told_already else on_error)
        files = [name for name in listing.files if name.endswith(".json") and name != MANIFEST]
        if not files:
            return []
        ranks = tuple(RankFile(path, None) for path in listing.paths(files))
        return [Cache(listing.folder, "files", files=ranks, root=self.named)]

    def _of_layouts(self) -> list[Branch]:
        names = (name for layout in LAYOUTS.values() for name in layout.roots)
        return [Branch(self.root / name, self.named) for name in names if (self.root / name).is_dir()]


def without_errors(found: Iterable[Thing | OSError], on_error: OnError) -> list[Thing]:
    things = []
    for one in found:
        if isinstance(one, OSError):
            on_error(one)
        else:
            things.append(one)
    return things
