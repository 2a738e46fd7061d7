"""A bundle as a temporary folder, for the commands on folders. It is checked whole, and nothing lands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cli.out import Output
from sgl_tune.processes.scratch import scratch
from sgl_tune.ship.archive import opened
from sgl_tune.ship.arrival import manifest_json
from sgl_tune.ship.manifest import BundleManifest, PackedStore
from sgl_tune.ship.staging import Staging, said_of
from sgl_tune.stores.describe import Summary
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import Size
from sgl_tune.stores.rows import BY_ID


class Listing(NamedTuple):
    folder: Path
    stores: list[Summary]
    told: dict[str, Any]


@contextmanager
def as_folder(out: Output, path: str, at: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield the temporary folder of a bundle, which is printed as the bundle's name, and the place that
    the bundle was packed for."""
    with _unfolded(out, Path(path), at) as (folder, manifest, _):
        yield str(folder), at or manifest.at


@contextmanager
def as_listing(out: Output, bundle: str) -> Iterator[Listing]:
    """Yield the temporary folder of a bundle, and its stores as its manifest lists them."""
    with _unfolded(out, Path(bundle), None) as (folder, manifest, digest):
        stores = [_summary(row, folder) for row in manifest.stores]
        yield Listing(folder, stores, {"digest": digest, **manifest_json(manifest)})


def _summary(row: PackedStore, root: Path) -> Summary:
    stored = Stored(row.store, root / BY_ID[row.store].folder, root)
    size = Size(row.files, row.bytes)
    versions = {name: set(found) for name, found in row.versions.items()}
    return Summary(stored, size, row.items, 0, versions, set(row.archs), set(row.pythons))


@contextmanager
def _unfolded(out: Output, bundle: Path, place: str | None) -> Iterator[tuple[Path, BundleManifest, str]]:
    """Unpack into a temporary folder; yield it with the bundle's manifest and digest. `place`: where a
    server would find it; None: as it was packed."""
    with scratch() as private:
        with out.progress("checking the bundle") as progress, opened(bundle) as found:
            manifest = found.archive.manifest
            Staging(private.folder, place).take(found.archive, lambda size: progress.advance())
        out.calls(str(private.folder), str(bundle))
        out.note(f"{bundle}: {found.digest}, by {manifest.tool}")
        with said_of(bundle, private.folder):
            yield private.folder, manifest, found.digest
