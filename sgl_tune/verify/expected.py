"""What is asked about a cache: the SGLang that will read it and what its deployment looks for in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runtime.server.releases import NEWEST, Release, release_named
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import BrokenManifest, Manifest

if TYPE_CHECKING:
    from sgl_tune.keys.keys import TunedOp
    from sgl_tune.keys.plan import CachePlan

WARM = "sgl-tune warm with the server's own flags"
_UNKNOWN = "_gpu<UUID>"


class Expected(NamedTuple):
    """`groups` are the names of the files that a start compares with each other; `way_out`: how they are
    filled."""

    folder: str
    key: str
    groups: tuple[tuple[str, ...], ...]
    ops: tuple[TunedOp, ...] = ()
    way_out: str = WARM

    @property
    def warmable(self) -> bool:
        return self.way_out == WARM

    @classmethod
    def from_plan(cls, plan: CachePlan, way_out: str = WARM) -> Expected:
        names = tuple(tuple(path.rsplit("/", 1)[-1] for path in group) for group in plan.groups)
        return cls(plan.folder, plan.key, names, plan.ops, way_out)

    def named_as_in(self, cache: Cache) -> Expected:
        """Where a plan cannot know the GPU in a file's name, the name that is there."""
        there = {file.rank._replace(gpu=None).filename: file.path.name for file in cache.files if file.rank}
        groups = tuple(
            tuple(there.get(name.replace(_UNKNOWN, ""), name) if _UNKNOWN in name else name for name in group)
            for group in self.groups
        )
        return self._replace(groups=groups)

    def empty_cache(self, cache_dir: Path) -> Cache:
        """The folder as a server finds it before anybody warmed it."""
        flashinfer, arch, key = self.folder.rsplit("/", 3)[1:]
        return Cache(cache_dir / self.folder, "sglang", flashinfer=flashinfer, arch=arch, key=key)


class Checked(NamedTuple):
    """`sglang` is None for the newest there is; `whole`: not one of the cache's files alone."""

    cache: Cache
    sglang: str | None = None
    expected: Expected | None = None
    whole: bool = True
    manifest: Manifest | None = None
    manifest_problem: BrokenManifest | None = None

    @property
    def release(self) -> Release:
        return release_named(self.sglang).release if self.sglang else NEWEST
