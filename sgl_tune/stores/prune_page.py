"""`prune --store`: say which items would go and why, ask, remove them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.stores.leftovers import sweep
from sgl_tune.stores.page import stores_meant
from sgl_tune.stores.prune import Chosen, StoreRules, plan, remove
from sgl_tune.units import count, human_bytes

_COLUMNS = (
    Column("STORE"),
    Column("ITEMS", right=True),
    Column("SIZE", right=True),
    Column("WHY"),
    Column("WHERE", path=True),
)


def prune_stores(
    out: Output, folder: Path | None, only: str, rules: StoreRules, dry_run: bool, yes: bool
) -> None:
    if rules.choose_nothing:
        raise UsageError("prune needs to be told what may go", "--stale, --older-than 30d or --max-size 1GB")
    found, _ = stores_meant(out, str(folder) if folder else None, only, None)
    wanted = [stored for stored in found if stored.store != "driver" or only == "driver"]
    chosen = plan(wanted, rules, time.time())
    if chosen and not dry_run and not yes:
        _show(out, chosen)
        if not out.confirm(f"Remove {_total(chosen)}?"):
            out.note("Nothing was removed.")
            return
    with out.progress("removing", len(chosen)) as progress:
        results = []
        for one in chosen:
            results.append((one, None if dry_run else remove(one)))
            progress.advance()
    for root in [folder] if folder else dict.fromkeys(stored.path for stored in wanted):
        sweep_and_tell(out, root, dry_run)
    _report(out, results, dry_run, asked=not yes)


def sweep_and_tell(out: Output, root: Path, dry_run: bool, deep: bool = True) -> None:
    for left in sweep(root, dry_run, lambda error: out.warn(f"{error.filename}: {error.strerror}"), deep):
        did = "would be" if dry_run else "were"
        out.note(f"{left.path}: {human_bytes(left.bytes)} that a killed command left {did} removed")


def _report(out: Output, results: list[tuple[Chosen, str | None]], dry_run: bool, asked: bool) -> None:
    gone = [one for one, left in results if left is None]
    left = [(one, why) for one, why in results if why is not None]

    def human() -> None:
        if gone and (dry_run or not asked):
            _show(out, gone)
        verb = "Would remove" if dry_run else "Removed"
        out.line(f"{verb} {_total(gone)}." if gone else "Nothing to remove.")

    data = {
        "dry_run": dry_run,
        "removed": [
            {
                "store": one.item.store,
                "path": str(one.item.path),
                "layout": "store",
                "key": one.item.name,
                "whole": True,
                "files": [],
                "bytes": one.item.size.bytes,
                "reason": one.reason,
            }
            for one in gone
        ],
        "skipped": [{"path": str(one.item.path), "reason": why} for one, why in left],
    }
    out.result(data, human, quiet=(str(one.item.path) for one in gone))
    for one, why in left[:3]:
        out.warn(f"{one.item.path}: left alone, {why}")
    failed = [why for _, why in left if why not in ("written since", "somebody else removed it")]
    if failed:
        raise WorkFailed(f"{count(len(failed), 'item')} could not be removed", "see the warnings above")


def _total(chosen: Sequence[Chosen]) -> str:
    return f"{count(len(chosen), 'item')}, {human_bytes(sum(one.item.size.bytes for one in chosen))}"


def _show(out: Output, chosen: Sequence[Chosen]) -> None:
    """A line a store and a reason: items come by the thousand."""
    items: Counter[tuple[str, str, Path]] = Counter()
    sizes: Counter[tuple[str, str, Path]] = Counter()
    for one in chosen:
        key = (one.item.store, one.reason, one.stored.path)
        items[key] += 1
        sizes[key] += one.item.size.bytes
    out.table(
        _COLUMNS,
        [(store, n, human_bytes(sizes[store, why, at]), why, at) for (store, why, at), n in items.items()],
    )
