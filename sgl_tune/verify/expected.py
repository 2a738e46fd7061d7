"""What is asked about a cache: the SGLang that will read it and what its deployment looks for in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.flashinfer.versions import number
from runtime.sglang.kept_files import KeptFiles, kept_files
from runtime.sglang.releases import NEWEST
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import BrokenManifest, Manifest

if TYPE_CHECKING:
    from sgl_tune.keys.plan import CachePlan
    from sgl_tune.recorded.caches import RecordedCache

WARM = "sgl-tune warm with the server's own flags"
BY_ITSELF = "start the server once: it tunes and saves them itself, which sgl-tune cannot do for it"
_UNKNOWN = "_gpu<UUID>"


class Lookup(NamedTuple):
    """`asked_by`: tuning, where the server's own autotune makes it; serving, where only its requests do."""

    key: str
    bucket: int
    asked_by: str


class Wanted(NamedTuple):
    """What a server looks up of one op."""

    op: str
    runner: str
    policy: tuple[Any, ...]
    entries: tuple[Lookup, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)


class Expected(NamedTuple):
    """`groups` are the names of the files that a start compares with each other; `way_out`: how they are
    filled."""

    folder: str
    key: str
    groups: tuple[tuple[str, ...], ...]
    ops: tuple[Wanted, ...] = ()
    way_out: str = WARM

    @property
    def warmable(self) -> bool:
        return self.way_out == WARM

    @classmethod
    def from_plan(cls, plan: CachePlan, way_out: str = WARM) -> Expected:
        ops = tuple(
            Wanted(
                op.op, op.runner, op.policy, tuple(Lookup(e.key, e.bucket, e.asked_by) for e in op.entries)
            )
            for op in plan.ops
        )
        return cls(plan.folder, plan.key, _names(plan.groups), ops, way_out)

    @classmethod
    def from_recorded(cls, cache: RecordedCache) -> Expected:
        """What a recorded start asks for: a call that a warm cannot make again, too."""
        ops = tuple(
            Wanted(op.op, op.runner, op.policy, tuple(_lookups(op.entries, op.serving_only)))
            for op in cache.all_ops
        )
        return cls(cache.folder, cache.key, _names(cache.groups), ops, WARM if not cache.left else BY_ITSELF)

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


def _names(groups: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(path.rsplit("/", 1)[-1] for path in group) for group in groups)


def _lookups(entries: Sequence[tuple[int, str]], serving_only: Sequence[int]) -> Iterator[Lookup]:
    for bucket, key in entries:
        yield Lookup(key, bucket, "serving" if bucket in serving_only else "tuning")


class Checked(NamedTuple):
    """`sglang` is None for the newest there is; `whole`: not one of the cache's files alone."""

    cache: Cache
    sglang: str | None = None
    expected: Expected | None = None
    whole: bool = True
    manifest: Manifest | None = None
    manifest_problem: BrokenManifest | None = None

    @property
    def release(self) -> KeptFiles:
        return kept_files(number(self.sglang or NEWEST.version))
