"""Combine a cache with what is known about it before it is judged."""

from __future__ import annotations

from collections.abc import Sequence

from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.manifest import BrokenManifest, read_manifest
from sgl_tune.verify.expected import Checked, Expected


def check(cache: Cache, sglang: str | None, whole: bool = True, expected: Sequence[Expected] = ()) -> Checked:
    """Return the cache with the expectation for its key. What the caller leaves out comes from the
    manifest."""
    manifest, problem = None, None
    if cache.manifest is not None and cache.layout == "sglang":
        try:
            manifest = read_manifest(cache.manifest, cache.root)
        except BrokenManifest as error:
            problem = error
    mine = next((item for item in expected if item.key == cache.key), expected[0] if expected else None)
    if mine is None and manifest:
        from sgl_tune.verify.planned import expected_by_manifest

        mine = expected_by_manifest(cache, manifest)
    named = mine.named_as_in(cache) if mine else None
    version = sglang or (manifest.sglang if manifest else None)
    return Checked(cache, version, named, whole, manifest, problem)
