"""What `unpack` and `pull` do with a local bundle, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cli.out import Output
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import CheckFailed
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.unpack import How, Unpacked, unpack
from sgl_tune.stores.find import find_stores
from sgl_tune.units import count, human_bytes
from sgl_tune.verify.check import check
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import Severity
from sgl_tune.verify.stores import machine_of, verify_stores, with_stores
from sgl_tune.verify.stores_page import stores_line
from sgl_tune.verify.verdict_line import verdict_line
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
        found = judge(folder, manifest, machine, how.place)
        verdicts.append(found.verdict)
        if not found.ok and not force:
            for text in found.objections[:_MOST_LISTED]:
                out.warn(text)
            told = f"{called}: {found.verdict}"
            raise CheckFailed(told, "nothing was unpacked; --force unpacks it all the same")

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
        "same": done.stores.same,
        "replaced": done.stores.replaced,
        "removed": done.stores.removed,
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


class Judgement(NamedTuple):
    ok: bool
    verdict: str
    objections: tuple[str, ...]


def judge(folder: Path, manifest: BundleManifest, target: Target, place: str) -> Judgement:
    """Judge the files in `folder`, which the server will see at `place`."""
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
    return Judgement(ok, line, tuple(dict.fromkeys((*said, *others))))


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
