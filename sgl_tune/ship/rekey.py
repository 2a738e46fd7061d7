"""Give a cache the key of a deployment that spells its model's path differently. SGLang hashes the path as
typed, so `/models/glm` and the model's name are two keys for the same kernels. No rank file depends on the
path: only the folder's name and the manifest in it change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runtime.server.cache_key import PART_NAMES, cache_folder, cache_key
from sgl_tune.cache.manifest import parse_manifest
from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import BundleManifest, PackedCache

PART = "model_path"
_AT = PART_NAMES.index("model path")
_PATHS = ("model_path", "speculative_draft_model_path")  # a deployment's paths, by SGLang's names


class Rekeyed(NamedTuple):
    """A changed key. `path`, `new_path`: the cache's folders."""

    path: str
    new_path: str
    key: str
    new_key: str
    part: str
    before: str
    after: str


def rekeyed(manifest: BundleManifest, asked: Sequence[str]) -> list[Rekeyed]:
    """Return the changes that `model_path=NEW` asks for, or `OLD=NEW` if the bundle has several models."""
    known = {cache.key_parts[_AT] for cache in manifest.caches if _is_proven(cache)}
    changes = dict(_change(one, known) for one in asked)
    if not changes:
        return []
    found = []
    for cache in manifest.caches:
        if not _is_proven(cache):
            raise UsageError(
                f"--rekey: the bundle does not say from what the key {cache.key} was made",
                "pack it with the sgl-tune.json that `warm` writes",
            )
        if cache.key_parts[_AT] in changes:
            found.append(_rekey(cache, changes[cache.key_parts[_AT]]))
    _check_apart(manifest, found)
    return found


def _change(asked: str, known: set[str]) -> tuple[str, str]:
    before, equals, after = asked.partition("=")
    if not equals or not after or not before:
        raise UsageError(f"--rekey {asked}: is not a change", f"write --rekey {PART}=/models/glm")
    if before in known:
        return before, after
    if before != PART:
        has = f"the bundle's model paths are {', '.join(sorted(known)) or 'not known'}"
        raise UsageError(f"--rekey {asked}: only {PART} can be changed; {has}", f"--rekey {PART}=/models/glm")
    if len(known) != 1:
        remedy = f"name one of them: --rekey {min(known)}={after}" if known else None
        raise UsageError(f"--rekey {asked}: the bundle has {len(known)} model paths", remedy)
    return next(iter(known)), after


def _is_proven(cache: PackedCache) -> bool:
    return len(cache.key_parts) > _AT and cache_key(cache.key_parts) == cache.key


def _rekey(cache: PackedCache, after: str) -> Rekeyed:
    parts = (*cache.key_parts[:_AT], after, *cache.key_parts[_AT + 1 :])
    key = cache_key(parts)
    path = cache_folder(cache.flashinfer, cache.arch, key)
    return Rekeyed(cache.path, path, cache.key, key, PART, cache.key_parts[_AT], after)


def _check_apart(manifest: BundleManifest, found: Sequence[Rekeyed]) -> None:
    moved = {one.path: one.new_path for one in found}
    places = [moved.get(cache.path, cache.path) for cache in manifest.caches]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice:
        raise UsageError(f"--rekey: two caches of the bundle would become {twice}", "unpack them one by one")


def with_new_key(raw: bytes, change: Rekeyed) -> bytes:
    """Return the manifest beside the rank files with the new key."""
    manifest = parse_manifest(Path(change.path) / "sgl-tune.json", raw)
    parts = [*manifest.key_parts[:_AT], change.after, *manifest.key_parts[_AT + 1 :]]
    told = {**json.loads(raw), "key_parts": parts}
    if manifest.deployment:
        told["deployment"] = _deployment(manifest.deployment, change)
    return json.dumps(told, indent=2).encode() + b"\n"


def _deployment(told: Mapping[str, Any], change: Rekeyed) -> dict[str, Any]:
    asked = told.get("asked")
    renamed = _renamed(told, change)
    return {**renamed, "asked": _renamed(asked, change)} if isinstance(asked, Mapping) else renamed


def _renamed(told: Mapping[str, Any], change: Rekeyed) -> dict[str, Any]:
    wrong = {name for name in _PATHS if told.get(name) == change.before}
    return {name: change.after if name in wrong else value for name, value in told.items()}
