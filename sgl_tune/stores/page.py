"""What `inspect` shows of stores: a line a store, or one store's items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.stores import describe
from sgl_tune.stores.describe import Summary, summarise
from sgl_tune.stores.find import Stored, stores_below
from sgl_tune.stores.of_user import stores_of_this_user
from sgl_tune.units import count, human_bytes


def stores_meant(
    out: Output, target: str | None, only: str | None, cache_dir: Path | None
) -> tuple[list[Stored], str]:
    """Below a folder that was named, else where a server started here would look; and that in words."""
    folder = Path(target) if target else cache_dir
    wanted = None if only == "all" else only
    if folder is None:
        return stores_of_this_user(wanted), "the places where a server of this user would look"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", "stores are folders; --store goes without a key")
    return stores_below(out, folder, wanted), str(folder)


def show_stores(
    out: Output, target: str | None, only: str, cache_dir: Path | None, limit: int | None
) -> None:
    """The items of one store, or all stores in a line each."""
    found, where = stores_meant(out, target, only, cache_dir)
    summaries = summarise(found, keep=only != "all", limit=limit)
    out.result(
        as_json([], summaries, with_items=only != "all"),
        human=lambda: _show(out, summaries, where, only),
        quiet=(str(summary.stored.path) for summary in summaries),
    )


def as_json(caches: list[dict[str, Any]], summaries: Sequence[Summary], with_items: bool) -> dict[str, Any]:
    return {
        "caches": caches,
        "stores": [describe.store_json(summary, with_items) for summary in summaries],
    }


def show_summaries(out: Output, summaries: Sequence[Summary]) -> None:
    out.table(describe.COLUMNS, map(describe.row, summaries))
    for remark in (remark for summary in summaries for remark in describe.remarks(summary)):
        out.line(f"! {remark}", style="yellow")
    files, size = sum(s.size.files for s in summaries), sum(s.size.bytes for s in summaries)
    out.line(f"{count(len(summaries), 'store')}, {count(files, 'file')}, {human_bytes(size)}")


def _show(out: Output, summaries: Sequence[Summary], where: str, only: str) -> None:
    if not summaries:
        what = "No stores" if only == "all" else f"No store of {only}"
        out.line(f"{what} in {where}.")
        return
    for summary in summaries if only != "all" else ():
        out.line(str(summary.stored.path), style="bold")
        out.table(describe.ITEM_COLUMNS, map(describe.item_row, summary.kept))
        if len(summary.kept) < summary.items:
            out.line(f"{summary.items - len(summary.kept)} more")
        out.line()
    show_summaries(out, summaries)
