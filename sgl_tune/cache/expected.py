"""What a known deployment looks for in one cache folder: from a plan, or from the cache's own manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.cache.keys import TunedOp
from sgl_tune.cache.layouts import Cache
from sgl_tune.errors import UsageError

if TYPE_CHECKING:
    from sgl_tune.plan import CachePlan, Plan


@dataclass(frozen=True)
class Expected:
    """`groups` are the names of the files that a start compares with each other."""

    folder: str
    key: str
    groups: tuple[tuple[str, ...], ...]
    ops: tuple[TunedOp, ...] = ()

    @classmethod
    def from_plan(cls, plan: CachePlan) -> Expected:
        names = tuple(tuple(path.rsplit("/", 1)[-1] for path in group) for group in plan.groups)
        return cls(plan.folder, plan.key, names, plan.ops)

    def empty_cache(self, cache_dir: Path) -> Cache:
        """The folder as a server finds it before anybody warmed it."""
        flashinfer, arch, key = self.folder.rsplit("/", 3)[1:]
        return Cache(cache_dir / self.folder, "sglang", flashinfer=flashinfer, arch=arch, key=key)


def expected_of(plan: Plan) -> list[Expected]:
    """The target's, and a draft worker's own."""
    return [Expected.from_plan(cache) for cache in (plan.target, plan.draft) if cache]


def expected_by_manifest(cache: Cache, deployment: Mapping[str, Any]) -> Expected | None:
    """None when the manifest's deployment is not one, or is another key's."""
    from sgl_tune.deployment_json import deployment_from_json
    from sgl_tune.plan import make_plan

    try:
        plan = make_plan(deployment_from_json(deployment, str(cache.manifest)), gpus=())
    except UsageError:
        return None
    return next((expected for expected in expected_of(plan) if expected.key == cache.key), None)
