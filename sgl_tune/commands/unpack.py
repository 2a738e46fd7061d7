"""`sgl-tune unpack`: a bundle, checked whole, and then where a server looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.options import CacheDirOption
from sgl_tune.errors import CheckFailed
from sgl_tune.ship.guard import Guard
from sgl_tune.ship.judging import Judgement, judge
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.options import (
    DigestOption,
    OwnerOption,
    PlaceOption,
    RekeyOption,
    ReplaceOption,
    digest_asked,
    owner_asked,
    place_asked,
)
from sgl_tune.ship.page import manifest_json, show_manifest
from sgl_tune.ship.unpack import How, Unpacked
from sgl_tune.ship.unpack import unpack as land
from sgl_tune.units import count
from sgl_tune.verify.environment import read_target

_MOST_LISTED = 10


def unpack(
    bundle: Annotated[Path, typer.Argument(metavar="FILE", help="What `sgl-tune pack` wrote.")],
    cache_dir: CacheDirOption = None,
    replace: ReplaceOption = False,
    rekey: RekeyOption = None,
    target: Annotated[
        Path | None,
        typer.Option("--target", metavar="ENV.JSON", help="Refuse what this machine's server would not use."),
    ] = None,
    at: PlaceOption = None,
    digest: DigestOption = None,
    owner: OwnerOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --target: unpack what it would not use, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all of it, and only say.")] = False,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Check a bundle to its last byte, and then put its caches and stores where a server looks.

    Nothing is written before all of it is checked. Caches that are there are added to, or replaced; paths in
    stores are made right for their new place. quiet prints the folders of the caches.

    Example: sgl-tune unpack cache.tar.gz --target env.json
    """
    out = Output(sink(format, quiet))
    root = cache_dir or default_cache_dir()
    pinned = digest_asked(digest)
    machine = read_target(target) if target else None
    how = How(
        root,
        place_asked(at, root),
        replace,
        tuple(rekey or ()),
        Guard(pinned),
        owner_asked(owner, root),
        dry_run,
    )
    judged: list[Judgement] = []

    def check(folder: Path, manifest: BundleManifest) -> None:
        if machine is None:
            return
        found = judge(folder, manifest, machine, how.place)
        judged.append(found)
        if not found.ok and not force:
            for text in found.objections[:_MOST_LISTED]:
                out.warn(text)
            raise CheckFailed(
                f"{bundle}: {found.verdict}", "nothing was unpacked; --force does it all the same"
            )

    with out.progress("unpacking") as progress:
        done = land(bundle, how, lambda size: progress.advance(), out.note, check)
    verdict = judged[0].verdict if judged else None
    out.result(
        _as_json(done, how, verdict),
        human=lambda: _show(out, done, how, verdict),
        quiet=(str(root / cache.path) for cache in done.caches),
    )


def _as_json(done: Unpacked, how: How, verdict: str | None) -> dict[str, Any]:
    return {
        "digest": done.digest,
        "root": str(how.root),
        "place": how.place,
        "dry_run": how.dry_run,
        "manifest": manifest_json(done.manifest),
        "verdict": verdict,
        "rekeyed": [change._asdict() for change in done.changes],
        "tactics": [{**cache._asdict(), "notes": list(cache.notes)} for cache in done.caches],
        "same": done.stores.same,
        "replaced": done.stores.replaced,
        "removed": done.stores.removed,
        "rewritten": [{"path": path, "for": why} for path, why in sorted(done.staged.rewritten.items())],
        "offered": sum(one.changed + one.right for one in done.mended),
    }


def _show(out: Output, done: Unpacked, how: How, verdict: str | None) -> None:
    show_manifest(out, done.manifest)
    for change in done.changes:
        out.line(f"{change.key} -> {change.new_key}: {change.before} is now {change.after}", indent=2)
    for cache in done.caches:
        out.line(f"{cache.path}: {cache.did}", indent=2)
        for note in cache.notes:
            out.line(note, indent=4)
    for text in _stores_said(done):
        out.line(text, indent=2)
    if verdict:
        out.line(verdict)
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
