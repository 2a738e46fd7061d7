"""FlashInfer's managed store: one file an entry, in a folder named after the environment's hash."""

from __future__ import annotations

import json
from pathlib import Path

from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.layout import Layout
from sgl_tune.cache.layouts.listing import Listing, OnError, list_folder


def _read(listing: Listing, on_error: OnError) -> Cache | None:
    key, schema = listing.parents(2)
    manifest = listing.folder / "manifest.json"
    if "entries" not in listing.folders or not (schema == "v2" or manifest.name in listing.files):
        return None
    entries = list_folder(listing.folder / "entries", listing.root, on_error)
    files = [name for name in entries.files if name.endswith(".json")]
    environment = _environment(manifest, listing.root)
    return Cache(
        listing.folder,
        MANAGED.name,
        flashinfer=environment.get("flashinfer_version"),
        arch=environment.get("gpu"),  # the store knows GPUs by name only
        key=key,
        files=tuple(RankFile(path, None) for path in entries.paths(files)),
        leftovers=listing.paths(listing.temporary()) + entries.paths(entries.temporary()),
        manifest=manifest if manifest.name in listing.files else None,
    )


def _environment(manifest: Path, root: Path) -> dict[str, str]:
    try:
        content = json.loads(read_below(manifest, root))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if isinstance(value, str)}


MANAGED = Layout("flashinfer-v2", "FlashInfer's managed store", ("autotune/v2", "v2"), _read)
