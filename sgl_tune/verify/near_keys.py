"""Under a key that no cache has: which one comes nearest, and what it was made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sgl_tune.cache.layouts import Cache, find_caches
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.nearest import nearest
from sgl_tune.keys.plan import Plan
from sgl_tune.verify.findings import Finding, finding


def near_keys(plans: Sequence[Plan], caches: Sequence[Cache] | None = None) -> Iterator[Finding]:
    """Of `caches`, or of all in the deployment's cache directory."""
    for plan in plans:
        there = _caches_in(plan.deployment.cache_dir) if caches is None else caches
        draft = plan.deployment.draft_deployment
        pairs = (("", plan.deployment, plan.target), ("the draft's ", draft, plan.draft))
        for whose, deployment, cache in pairs:
            if deployment and cache and cache.files and not _holds(there, cache.key):
                yield from _near(deployment, there, whose)


def _caches_in(cache_dir: Path) -> list[Cache]:
    return find_caches(cache_dir, _no_matter) if cache_dir.is_dir() else []


def _no_matter(error: OSError) -> None:
    """What cannot be looked into is said where it matters."""


def _holds(caches: Sequence[Cache], key: str) -> bool:
    return any(cache.key == key and cache.files for cache in caches)


def _near(deployment: Deployment, caches: Sequence[Cache], whose: str) -> Iterator[Finding]:
    near = nearest(deployment, caches)
    if near is not None:
        yield finding(
            "nearest-key",
            f"no cache is under {whose}key {deployment.server.key}; nearest is {near.says}",
            "if that is what the server runs with, say so; else sgl-tune warm fills this key",
            where=deployment.name,
        )
