"""What is asked about a cache: the SGLang that will read it and what its deployment looks for in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runtime.server.releases import NEWEST, Release, release_named
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import BrokenManifest, Manifest, read_manifest
from sgl_tune.deployment.as_json import deployment_from_json
from sgl_tune.errors import UsageError
from sgl_tune.keys.keys import TunedOp
from sgl_tune.keys.plan import CachePlan, Plan, make_plan
from sgl_tune.keys.verdict import verdict_of

WARM = "sgl-tune warm with the server's own flags"
_BY_ITSELF = "start the server once: it tunes and saves them itself, which sgl-tune cannot do for it"
NOT_AT_ALL = "leave --moe-runner-backend out: no server runs so on this GPU"
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


def check(cache: Cache, sglang: str | None, whole: bool = True, expected: Sequence[Expected] = ()) -> Checked:
    """What nobody said is taken from the cache's own manifest. Of several expectations the key decides."""
    manifest, problem = _manifest_of(cache)
    mine = next((item for item in expected if item.key == cache.key), None)
    if mine is None and expected:
        mine = expected[0]
    elif mine is None and manifest:
        mine = _expected_by_manifest(cache, manifest)
    named = mine.named_as_in(cache) if mine else None
    version = sglang or (manifest.sglang if manifest else None)
    return Checked(cache, version, named, whole, manifest, problem)


def _manifest_of(cache: Cache) -> tuple[Manifest | None, BrokenManifest | None]:
    if cache.manifest is None or cache.layout != "sglang":
        return None, None
    try:
        return read_manifest(cache.manifest, cache.root), None
    except BrokenManifest as error:
        return None, error


def expected_of(plan: Plan) -> list[Expected]:
    """The target's, and a draft worker's own; none of a server that tunes nothing."""
    verdict = verdict_of(plan)
    otherwise = _BY_ITSELF if verdict.runs else NOT_AT_ALL
    fills = plan.caches if verdict.obstacle is None else ()
    return [
        Expected.from_plan(cache, WARM if cache in fills else otherwise)
        for cache in (plan.target, plan.draft)
        if cache and cache.files
    ]


def _expected_by_manifest(cache: Cache, manifest: Manifest) -> Expected | None:
    """None when the manifest's deployment is not one, or looks under another key."""
    plan = _plan_by_manifest(cache, manifest)
    expected = expected_of(plan) if plan else []
    return next((item for item in expected if item.key == cache.key), None)


def _plan_by_manifest(cache: Cache, manifest: Manifest) -> Plan | None:
    try:
        return make_plan(deployment_from_json(manifest.deployment, str(cache.manifest)), gpus=())
    except UsageError:
        return None


def plan_of(checked: Checked, plans: Sequence[Plan]) -> Plan | None:
    """The deployment whose key the cache has: one that was named, else the one of its manifest."""
    mine = [_plan_by_manifest(checked.cache, checked.manifest)] if checked.manifest else []
    known = [plan for plan in (*plans, *mine) if plan]
    keys = {checked.cache.key}
    return next((plan for plan in known if keys & {cache.key for cache in plan.caches}), None)
