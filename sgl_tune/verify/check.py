"""What is known of a cache before it is judged: its SGLang, and what its deployment looks for in it."""

from __future__ import annotations

from collections.abc import Sequence

from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import BrokenManifest, Manifest, read_manifest
from sgl_tune.verify.expected import Checked, Expected


def check(cache: Cache, sglang: str | None, whole: bool = True, expected: Sequence[Expected] = ()) -> Checked:
    """What nobody said is taken from the cache's own manifest. Of several expectations the key decides."""
    manifest, problem = _manifest_of(cache)
    mine = next((item for item in expected if item.key == cache.key), None)
    if mine is None and expected:
        mine = expected[0]
    elif mine is None and manifest:
        from sgl_tune.verify.planned import expected_by_manifest

        mine = expected_by_manifest(cache, manifest)
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
