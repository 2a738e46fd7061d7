"""What `unpack` and `pull` do with a bundle that is here, and what they say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.errors import CheckFailed
from sgl_tune.ship.judging import judge
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.page import manifest_json, show_manifest
from sgl_tune.ship.unpack import How, Unpacked, unpack
from sgl_tune.units import count, human_bytes
from sgl_tune.verify.environment import Target

_MOST_LISTED = 10


@dataclass(frozen=True)
class Arrived:
    done: Unpacked
    how: How
    verdict: str | None


def arrive(out: Output, bundle: Path, called: str, how: How, machine: Target | None, force: bool) -> Arrived:
    """`called` is what the user knows it as. What `machine` would not use is refused, unless forced."""
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
            raise CheckFailed(told, "nothing was unpacked; --force does it all the same")

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
            f"of stores: {count(done.stores.same, 'file')} there already, {done.stores.replaced:,} replaced,"
            f" {count(done.stores.removed, 'folder')} removed first"
        )
    placed = [path for path, why in sorted(done.staged.rewritten.items()) if why == "place"]
    said += [f"made right for its new place: {path}" for path in placed[:_MOST_LISTED]]
    if len(placed) > _MOST_LISTED:
        said.append(f"and {len(placed) - _MOST_LISTED:,} more groups of kernels")
    said += [f"{one.what}: {one.changed + one.right:,}" for one in done.mended]
    return said
