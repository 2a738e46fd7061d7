"""What `unpack` and `pull` do with a local bundle or one that is fetched from a URL, and what they print."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import CheckFailed
from sgl_tune.processes.scratch import scratch
from sgl_tune.ship.archive import opened
from sgl_tune.ship.landing import missing_folders, remove_empty
from sgl_tune.ship.manifest import BundleManifest, PackedCache, PackedStore
from sgl_tune.ship.remote.remotes import How as WayThere
from sgl_tune.ship.remote.remotes import Machine, Pulled, offer_json, remote
from sgl_tune.ship.signing.signature import Guard
from sgl_tune.ship.staging import Staging, said_of
from sgl_tune.ship.unpack import How, Unpacked, unpack
from sgl_tune.stores.describe import Summary
from sgl_tune.stores.find import Stored, find_stores
from sgl_tune.stores.item import Size
from sgl_tune.stores.rows import BY_ID
from sgl_tune.units import count, human_bytes
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import Severity
from sgl_tune.verify.scope import check
from sgl_tune.verify.stores import machine_of, verify_stores, with_stores
from sgl_tune.verify.verdict_line import stores_line, verdict_line
from sgl_tune.verify.verify import verify

_MOST_LISTED = 10
_CACHES = columns_of("KEY", ">FILES", ">ENTRIES", "FLASHINFER", "GPU", "TUNED FOR/")
_STORES = columns_of("STORE", ">ITEMS", ">FILES", ">SIZE", "MADE FOR", "CODE")


@dataclass(frozen=True)
class Arrived:
    done: Unpacked
    how: How
    verdict: str | None


def arrive(out: Output, bundle: Path, called: str, how: How, machine: Target | None, force: bool) -> Arrived:
    """Unpack a bundle. `called`: its name for the user. `force`: accept files `machine` would not use."""
    verdicts: list[str] = []

    def check(folder: Path, manifest: BundleManifest) -> None:
        if machine is None:
            return
        ok, verdict, objections = judge(folder, manifest, machine, how.place)
        verdicts.append(verdict)
        if not ok and not force:
            for text in objections[:_MOST_LISTED]:
                out.warn(text)
            raise CheckFailed(f"{called}: {verdict}", "nothing was unpacked; --force unpacks it all the same")

    with out.progress("unpacking") as progress:

        def hashed(there: int) -> None:
            progress.advance(0, f"{human_bytes(there)} hashed")

        done = unpack(bundle, how, lambda size: progress.advance(), out.note, check, called, hashed)
    if done.trust.doubt:
        out.warn(done.trust.words)
    return Arrived(done, how, verdicts[0] if verdicts else None)


def arrived_json(arrived: Arrived) -> dict[str, Any]:
    done, how = arrived.done, arrived.how
    return {
        "digest": done.digest,
        "root": str(how.root),
        "place": how.place,
        "dry_run": how.dry_run,
        "manifest": manifest_json(done.manifest),
        "signed_by": list(done.trust.signed_by),
        "verdict": arrived.verdict,
        "rekeyed": [change._asdict() for change in done.changes],
        "tactics": [{**cache._asdict(), "notes": list(cache.notes)} for cache in done.caches],
        **asdict(done.stores),
        "rewritten": [{"path": path, "for": why} for path, why in sorted(done.staged.rewritten.items())],
        "offered": sum(one.changed + one.right for one in done.mended),
    }


def show_arrived(out: Output, arrived: Arrived) -> None:
    done, how = arrived.done, arrived.how
    show_manifest(out, done.manifest)
    for change in done.changes:
        out.line(f"{change.key} -> {change.new_key}: {change.before} is now {change.after}", indent=2)
    for cache in done.caches:
        out.line(f"{cache.path}: {cache.did}", indent=2)
        for note in cache.notes:
            out.line(note, indent=4)
    for text in _stores_said(done):
        out.line(text, indent=2)
    if not done.trust.doubt:
        out.line(done.trust.words)
    if arrived.verdict:
        out.line(arrived.verdict)
    did = "Would be unpacked" if how.dry_run else "Unpacked"
    out.line(f"{did} to {how.root}: {done.digest}", style="green")
    if done.manifest.stores and not how.dry_run:
        out.hint(f"sgl-tune relocate {how.root} --format quiet prints the variables that a server needs")


def _stores_said(done: Unpacked) -> Sequence[str]:
    said = []
    if done.stores.same or done.stores.replaced or done.stores.removed:
        said.append(
            f"stores: {count(done.stores.same, 'file')} there already, {done.stores.replaced:,} replaced,"
            f" {count(done.stores.removed, 'folder')} removed first"
        )
    placed = [path for path, why in sorted(done.staged.rewritten.items()) if why == "place"]
    said += [f"paths rewritten: {path}" for path in placed[:_MOST_LISTED]]
    if len(placed) > _MOST_LISTED:
        said.append(f"and {len(placed) - _MOST_LISTED:,} more files")
    said += [f"{one.what}: {one.changed + one.right:,}" for one in done.mended]
    return said


def judge(folder: Path, manifest: BundleManifest, target: Target, place: str) -> tuple[bool, str, list[str]]:
    """Judge the files in `folder`, which the server will see at `place`: return whether they are good, the
    verdict, and the errors."""
    unread: list[OSError] = []
    caches = find_caches(folder) if manifest.caches else []
    stores = find_stores(folder, unread.append) if manifest.stores else []
    judged = verify_stores(stores, machine_of(ServerFlags(), target, None, place))
    report = verify([check(cache, target.sglang) for cache in caches], target)
    report = with_stores(report, judged, target)
    ok = report.ok() and not unread
    said = (
        f"{file.path.relative_to(folder)}: {found.message}"
        for file in report.files
        for found in file.findings
        if found.severity is Severity.ERROR
    )
    errors = (found for found in report.findings if found.severity is Severity.ERROR)
    others = (str(found).replace(f"{folder}/", "") for found in errors)
    line = verdict_line(report, (), ok, stores_line(judged) if judged else None)
    return ok, line, list(dict.fromkeys((*said, *others)))


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
    caches, stores = map(_cache_row, manifest.caches), map(_store_row, manifest.stores)
    for columns, rows in ((_CACHES, list(caches)), (_STORES, list(stores))):
        if rows:
            out.table(columns, rows)
            out.line()
    out.line(f"{count(len(manifest.files), 'file')}, {human_bytes(manifest.bytes)} unpacked")


def _cache_row(cache: PackedCache) -> tuple[object, ...]:
    gpu, model = cache.environment.get("gpu", cache.arch), " ".join(cache.key_parts[:1]) or "-"
    return cache.key, cache.files, f"{cache.entries:,}", cache.flashinfer, gpu, model


def _store_row(store: PackedStore) -> tuple[object, ...]:
    made_for = ", ".join(f"{name} {one}" for name, all in store.versions.items() for one in all) or "-"
    numbers = f"{store.items:,}", f"{store.files:,}", human_bytes(store.bytes)
    return store.store, *numbers, made_for, "yes" if store.executable else "no"


class Wanted(NamedTuple):
    url: str
    machine: Machine
    guard: Guard
    way: AbstractContextManager[WayThere]


def is_address(text: str) -> bool:
    return "://" in text


@contextmanager
def pulled(wanted: Wanted, folder: Path) -> Iterator[tuple[Pulled, Guard]]:
    """Yield the bundle as a file, and what it must be: its digest is now fixed, and equals a pinned one."""
    with (
        wanted.way as how,
        remote(wanted.url, how).pull(folder / f".sgl-tune-pulls-{os.geteuid()}", wanted.machine) as found,
    ):
        pinned, digest = wanted.guard.pinned, found.offer.digest
        if pinned not in (None, digest):
            told = f"its digest is {digest}, not {pinned}"
            raise CheckFailed(told, "this is another bundle: do not use it")
        guard = dataclasses.replace(wanted.guard, pinned=digest, signatures=found.signatures, pulled=True)
        yield found, guard


def land(
    out: Output, wanted: Wanted, how: How, target: Target | None, force: bool
) -> tuple[Arrived, dict[str, Any]]:
    """Fetch and unpack a bundle; return what landed and what was fetched."""
    missing = missing_folders(how.root) if how.dry_run else []
    with pulled(wanted, how.root) as (found, guard):
        how = dataclasses.replace(how, guard=guard)
        arrived = arrive(out, found.file.path, wanted.url, how, target, force)
    remove_empty(missing)
    return arrived, fetched_json(wanted.url, found)


def fetched_json(url: str, found: Pulled) -> dict[str, Any]:
    return {"url": url, "bundle": offer_json(found.offer), "received": found.file.received}


@contextmanager
def as_folder(out: Output, path: str, at: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield the temporary folder of a bundle, which is printed as the bundle's name, and the place that
    the bundle was packed for."""
    with _unfolded(out, Path(path), at) as (folder, manifest, _):
        yield str(folder), at or manifest.at


@contextmanager
def as_listing(out: Output, bundle: str) -> Iterator[tuple[Path, list[Summary], dict[str, Any]]]:
    """Yield the temporary folder of a bundle, its stores as its manifest lists them, and the manifest."""
    with _unfolded(out, Path(bundle), None) as (folder, manifest, digest):
        stores = [_summary(row, folder) for row in manifest.stores]
        yield folder, stores, {"digest": digest, **manifest_json(manifest)}


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
