"""What is known about a cache before it is judged: the SGLang that reads it, and its lookups."""

from pathlib import Path
from typing import NamedTuple

from runtime.flashinfer.versions import number
from runtime.sglang.kept_files import KeptFiles, kept_files
from runtime.sglang.releases import NEWEST
from sgl_tune.cache.asked import CachePlan, TunedOp
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.manifest import BrokenManifest, Manifest

WARM = "sgl-tune warm with the server's own flags"
BY_ITSELF = "start the server once: it tunes and saves them itself, which sgl-tune cannot do for it"
_UNKNOWN = "_gpu<UUID>"


class Expected(NamedTuple):
    """What a start looks up. `groups`: names of files that a start compares. `way_out`: what fills them."""

    folder: str
    key: str
    groups: tuple[tuple[str, ...], ...]
    ops: tuple[TunedOp, ...] = ()
    way_out: str = WARM

    @classmethod
    def of(cls, plan: CachePlan, ops: tuple[TunedOp, ...], way_out: str) -> "Expected":
        names = tuple(tuple(path.rsplit("/", 1)[-1] for path in group) for group in plan.groups)
        return cls(plan.folder, plan.key, names, ops, way_out)

    def named_as_in(self, cache: Cache) -> "Expected":
        """Return this with the cache's own file names, if a plan cannot know the GPU in the names."""
        there = {file.rank._replace(gpu=None).filename: file.path.name for file in cache.files if file.rank}
        groups = tuple(
            tuple(there.get(name.replace(_UNKNOWN, ""), name) if _UNKNOWN in name else name for name in group)
            for group in self.groups
        )
        return self._replace(groups=groups)

    def empty_cache(self, cache_dir: Path) -> Cache:
        """Return the folder as a server finds it before any warm."""
        flashinfer, arch, key = self.folder.rsplit("/", 3)[1:]
        return Cache(cache_dir / self.folder, "sglang", flashinfer=flashinfer, arch=arch, key=key)


class Checked(NamedTuple):
    """A cache to judge. `sglang`: None for the newest release. `whole`: False if only one file is judged."""

    cache: Cache
    sglang: str | None = None
    expected: Expected | None = None
    whole: bool = True
    manifest: Manifest | None = None
    manifest_problem: BrokenManifest | None = None

    @property
    def release(self) -> KeptFiles:
        return kept_files(number(self.sglang or NEWEST.version))
