"""A bundle's manifest in words and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.units import count, human_bytes

_CACHES = (
    Column("KEY"),
    Column("FILES", right=True),
    Column("ENTRIES", right=True),
    Column("FLASHINFER"),
    Column("GPU"),
    Column("TUNED FOR", path=True),
)
_STORES = (
    Column("STORE"),
    Column("ITEMS", right=True),
    Column("FILES", right=True),
    Column("SIZE", right=True),
    Column("MADE FOR"),
    Column("CODE"),
)


def manifest_json(manifest: BundleManifest) -> dict[str, Any]:
    return {
        "contents": manifest.digest,
        "tool": manifest.tool,
        "at": manifest.at,
        "files": len(manifest.files),
        "unpacked_bytes": manifest.bytes,
        "caches": [asdict(cache) for cache in manifest.caches],
        "stores": [asdict(store) for store in manifest.stores],
    }


def show_manifest(out: Output, manifest: BundleManifest) -> None:
    if manifest.caches:
        out.table(
            _CACHES,
            [
                (
                    cache.key,
                    cache.files,
                    f"{cache.entries:,}",
                    cache.flashinfer,
                    cache.environment.get("gpu", cache.arch),
                    " ".join(cache.key_parts[:1]) or "-",
                )
                for cache in manifest.caches
            ],
        )
        out.line()
    if manifest.stores:
        out.table(
            _STORES,
            [
                (
                    store.store,
                    f"{store.items:,}",
                    f"{store.files:,}",
                    human_bytes(store.bytes),
                    ", ".join([f"{name} {one}" for name, all in store.versions.items() for one in all])
                    or "-",
                    "yes" if store.executable else "no",
                )
                for store in manifest.stores
            ],
        )
        out.line()
    out.line(f"{count(len(manifest.files), 'file')}, {human_bytes(manifest.bytes)} unpacked")
