"""What a registry is told of a bundle: its digests, and labels by which people and tools find it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.ship.archive import opened
from sgl_tune.ship.machine import platform_here
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.registry_image import ARCH, BYTES, GPU, KEYS, MODELS, OURS, PLATFORM
from sgl_tune.ship.remotes import Machine

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Described:
    """`told` stands in the index and the manifest, where `pull` chooses by it; `labels` in the image."""

    digest: str
    diff_id: str
    bytes: int
    platform: str
    told: Mapping[str, str]
    labels: Mapping[str, str]


def described(bundle: Path, machine: Machine, progress: Progress) -> Described:
    """Read to its end, so that nothing is pushed which no pull would take."""
    with opened(bundle, with_diff_id=True) as found:
        done, total = 0, found.archive.manifest.bytes
        for _, content in found.archive.each():
            for piece in content:
                done += len(piece)
                progress("checked", done, total)
        size, manifest = found.archive.compressed, found.archive.manifest
        told = {OURS: found.digest, BYTES: str(size), **_told(manifest, machine)}
        labels = {**told, **_labels(manifest)}
        return Described(found.digest, found.diff_id, size, machine.platform or platform_here(), told, labels)


def _told(manifest: BundleManifest, machine: Machine) -> dict[str, str]:
    told = {
        GPU: machine.gpu,
        ARCH: machine.arch,
        PLATFORM: machine.platform,
        KEYS: _joined(sorted(manifest.keys)),
        MODELS: _joined(cache.key_parts[0] for cache in manifest.caches if cache.key_parts),
        "sgl-tune.sglang": _joined(cache.sglang for cache in manifest.caches),
        "sgl-tune.flashinfer": _joined(cache.flashinfer for cache in manifest.caches),
        "sgl-tune.stores": _joined(store.store for store in manifest.stores),
        "sgl-tune.code": "yes" if manifest.has_code else "no",
        "sgl-tune.contents": manifest.digest,
        "sgl-tune.tool": manifest.tool,
    }
    return {name: value for name, value in told.items() if value}


def _joined(words: Iterable[str | None]) -> str:
    return ",".join(dict.fromkeys(filter(None, words)))


def _labels(manifest: BundleManifest) -> dict[str, str]:
    return {
        "sgl-tune.files": str(len(manifest.files)),
        "sgl-tune.unpacked-bytes": str(manifest.bytes),
        "sgl-tune.tactics": str(sum(cache.entries for cache in manifest.caches)),
        **{f"sgl-tune.items.{store.store}": str(store.items) for store in manifest.stores},
        "sgl-tune.at": manifest.at,
    }
