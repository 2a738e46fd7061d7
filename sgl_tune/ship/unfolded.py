"""A bundle as a folder for a while, for the commands on folders: checked whole, and nothing of it lands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from runtime.server.stores import BY_ID
from sgl_tune.cli.out import Output
from sgl_tune.errors import SglTuneError
from sgl_tune.processes.scratch import scratch
from sgl_tune.ship.archive import opened
from sgl_tune.ship.manifest import BundleManifest, PackedStore
from sgl_tune.ship.members import members
from sgl_tune.ship.page import manifest_json
from sgl_tune.ship.places import store_of
from sgl_tune.ship.staging import Staging, check_room
from sgl_tune.stores.describe import Summary
from sgl_tune.stores.find import TACTICS, Stored
from sgl_tune.stores.item import Size

Progress = Callable[[int], None]


class Listing(NamedTuple):
    folder: Path
    stores: list[Summary]
    told: dict[str, Any]


class Unfolded(NamedTuple):
    folder: Path
    manifest: BundleManifest
    digest: str


@contextmanager
def as_folder(out: Output, path: str, at: str | None) -> Iterator[tuple[str, str | None]]:
    """The folder that a bundle is for a while, which is called as the bundle is, and the place that it was
    packed for."""
    with ExitStack() as held:
        with out.progress("checking the bundle") as progress:
            found = held.enter_context(unfolded(Path(path), at, lambda size: progress.advance()))
        out.calls(str(found.folder), path)
        out.note(f"{path}: {found.digest}, by {found.manifest.tool}")
        yield str(found.folder), at or found.manifest.at


@contextmanager
def as_listing(out: Output, bundle: str) -> Iterator[Listing]:
    """Its rank files as a folder, called as the bundle is, and its stores as its manifest tells of them."""
    with ExitStack() as held:
        with out.progress("checking the bundle") as progress:
            path = Path(bundle)
            found = held.enter_context(unfolded(path, None, lambda size: progress.advance(), False))
        out.calls(str(found.folder), bundle)
        stores = [_summary(row, found.folder) for row in found.manifest.stores]
        told = {"digest": found.digest, **manifest_json(found.manifest)}
        out.note(f"{bundle}: {found.digest}, by {found.manifest.tool}")
        yield Listing(found.folder, stores, told)


def _summary(row: PackedStore, root: Path) -> Summary:
    stored = Stored(row.store, root / BY_ID[row.store].folder, root)
    size = Size(row.files, row.bytes)
    versions = {name: set(found) for name, found in row.versions.items()}
    return Summary(stored, size, row.items, 0, versions, set(row.archs), set(row.pythons))


@contextmanager
def unfolded(
    bundle: Path, place: str | None, progress: Progress, with_stores: bool = True
) -> Iterator[Unfolded]:
    """`place`: where a server would find it; None where it was packed for. Without stores their files are
    checked, and not written."""
    with scratch() as private, opened(bundle) as found:
        manifest = found.archive.manifest
        keeps = None if with_stores else _tactics(manifest)
        check_room(private.folder, manifest, keeps)
        with Staging(private.folder, place, keeps=keeps) as staging:
            staging.take(found.archive, progress)
        with _named(private.folder, bundle):
            yield Unfolded(private.folder, manifest, found.digest)


def _tactics(manifest: BundleManifest) -> set[str]:
    """And what they are links to."""
    found = {path for path in manifest.files if store_of(path) == TACTICS}
    return found | {member.link for member in members(manifest) if member.link and member.path in found}


@contextmanager
def _named(folder: Path, bundle: Path) -> Iterator[None]:
    """An error about the folder is one about the bundle."""
    try:
        yield
    except SglTuneError as error:
        said = error.message.replace(str(folder), str(bundle))
        raise type(error)(said, error.remedy and error.remedy.replace(str(folder), str(bundle))) from error
