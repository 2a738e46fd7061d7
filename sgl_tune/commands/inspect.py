"""`sgl-tune inspect`: list the caches and what they contain."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sgl_tune.cache.describe import (
    FIELDS,
    Filter,
    cache_json,
    deployment_text,
    parse_filters,
    place_text,
    remarks,
    tactic_text,
    wanted,
)
from sgl_tune.cache.layouts.find import keys
from sgl_tune.cache.rank_names import names_text
from sgl_tune.cache.record import Entry
from sgl_tune.cache.scan import ScannedCache, Scanner
from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.ship.recognised import is_bundle
from sgl_tune.stores.find import TACTICS, store_asked_for, stores_below
from sgl_tune.units import count, human_age, human_bytes

if TYPE_CHECKING:
    from sgl_tune.stores.describe import Summary

_COLUMNS = columns_of("KEY", "RANKS", ">ENTRIES", ">SIZE", ">AGE", "SAME", "TUNED FOR/")
_CHOICE = columns_of("OP/", "RUNNER/", ">BUCKET", ">TACTIC")
_MEASURED = columns_of(">MS", ">SPEED-UP", ">AHEAD")


def inspect(
    target: Annotated[
        str | None,
        Argument(
            metavar="PATH|KEY|BUNDLE",
            help="A folder, a file, a bundle, or a prefix of a cache's key.",
            autocompletion=keys,
        ),
    ] = None,
    entries: Annotated[bool, Option("--entries", help="List every tuned choice.")] = False,
    where: Annotated[
        list[str] | None,
        Option("--filter", metavar="'FIELD OP VALUE'", help=f"Repeatable. Fields: {', '.join(FIELDS)}."),
    ] = None,
    store: Annotated[
        str | None,
        Option("--store", metavar="ID|all", help="List a store of compiled kernels: triton, tvm-ffi, ..."),
    ] = None,
    cache_dir: CacheDirOption = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """List the caches on this disk: age, size, entries, ranks, and whether the ranks have the same content.

    PATH may be SGLang's or vLLM's cache directory, FlashInfer's managed store, any folder in them, one file,
    or a bundle of `sgl-tune pack`, which is checked completely. Stores of compiled kernels in PATH are listed
    too; --store lists the items of one store. Without a PATH, --store looks where a server here would look.

    Example: sgl-tune inspect --filter 'age>30d'
    """
    out = Output(sink(format, quiet))
    only = store_asked_for(store)
    listed = partial(_list, out, entries, parse_filters(where or []))
    root = cache_dir or default_cache_dir()
    without_stores = bool(where) or store == TACTICS
    if target and is_bundle(target):
        if only:
            raise UsageError(f"--store {only}: a bundle's stores are listed as wholes", "unpack it first")
        from sgl_tune.ship.arrival import as_listing

        with as_listing(out, target) as (folder, stores, manifest):
            listed(str(folder), root, [] if without_stores else stores, manifest)
    elif only:
        from sgl_tune.stores.describe import show_stores

        show_stores(out, target, only, cache_dir)
    else:
        listed(target, root, [] if without_stores else _stores_beside(out, Path(target or root)))


def _list(
    out: Output,
    entries: bool,
    filters: Sequence[Filter],
    target: str | None,
    root: Path,
    stores: "Sequence[Summary]",
    bundle: Mapping[str, Any] | None = None,
) -> None:
    unread: list[str] = []

    def on_error(error: OSError) -> None:
        unread.append(f"{error.filename}: {error.strerror}")
        out.warn(unread[-1])

    scanner = Scanner(digests=out.format is Format.json)
    scanned = scanner.resolve(target, root, on_error, {summary.stored.path for summary in stores})
    if unread and not scanned:
        raise WorkFailed(f"no cache can be read in {target or root}: {unread[0]}")
    if target and Path(target).is_file() and any(cache.is_foreign for cache in scanned):
        raise UsageError(f"{target}: not a cache file", "`sgl-tune inspect` lists the caches there are")
    caches = [cache for cache in scanned if all(f.keeps(cache) for f in filters)]
    as_printed = caches if out.format is Format.json else []
    listed = [cache_json(cache, entries, filters) for cache in as_printed]
    of_stores = [store.to_json() for store in stores]
    out.result(
        {"caches": listed, "stores": of_stores, **({"bundle": bundle} if bundle else {})},
        human=lambda: _show(out, caches, stores, entries, filters, target or str(root)),
        quiet=(
            *(line for cache in caches for line in _paths(cache)),
            *(str(summary.stored.path) for summary in stores),
        ),
    )


def _paths(cache: ScannedCache) -> Iterable[str]:
    if cache.cache.layout == "files":
        return (str(file.path) for file in cache.files)
    return (str(cache.cache.path),)


def _show(
    out: Output,
    caches: list[ScannedCache],
    stores: "Sequence[Summary]",
    with_entries: bool,
    filters: Sequence[Filter],
    where: str,
) -> None:
    if stores:
        from sgl_tune.stores.describe import show_summaries

        show_summaries(out, stores)
        out.line()
    if not caches:
        none = f"No caches in {where}{' pass the filters' if filters else ''}."
        return out.line(f"No caches of tactics in {where}." if stores else none)
    for place, members in groupby(caches, key=place_text):
        group = list(members)
        out.line(place, style="bold")
        out.table(_COLUMNS, [row for cache in group for row in _rows(cache)])
        for remark in (remark for cache in group for remark in remarks(cache)):
            out.line(f"! {remark}", style="yellow")
        out.line()
    if len(caches) == 1 and len(caches[0].contents) == 1:
        _show_environment(out, caches[0])
    if with_entries:
        for cache in caches:
            _show_entries(out, cache, filters)
    files = sum(len(cache.files) for cache in caches)
    size = human_bytes(sum(cache.bytes for cache in caches))
    out.line(f"{count(len(caches), 'cache')}, {count(files, 'file')}, {size} in {where}")


def _rows(cache: ScannedCache) -> list[tuple[object, ...]]:
    if cache.cache.layout == "files":
        return [
            (file.path.name, "-", file.content.entries, human_bytes(file.bytes), "", "", "")
            for file in cache.files
        ]
    ranks = names_text([file.path.name for file in cache.files])
    row = (
        _name(cache),
        ranks or "-",
        cache.entries,
        human_bytes(cache.bytes),
        human_age(cache.age) if cache.age is not None else "-",
        "-" if not ranks or len(cache.files) < 2 else "yes" if cache.agree else "NO",
        deployment_text(cache),
    )
    return [row]


def _name(cache: ScannedCache) -> str:
    return cache.cache.key or cache.cache.path.name


def _show_environment(out: Output, cache: ScannedCache) -> None:
    fields = dict(cache.environment or {})
    manifest = cache.manifest
    if manifest:
        fields |= {
            "driver": manifest.driver,
            "SGLang": manifest.sglang,
            "written": manifest.created,
            "seconds": manifest.seconds,
            "key parts": " | ".join(manifest.key_parts) or None,
            "notes": manifest.notes,
        }
    out.fields(fields)
    out.line()


def _measured_cells(entry: Entry, told: Mapping[str, float | None]) -> tuple[str, str, str]:
    """Return the winner's time, its speed-up over the default and its lead over the second as cells."""
    best, default, ahead = (told.get(name) for name in ("best_ms", "default_ms", "runner_up"))
    best, ahead = (entry.ms if best is None else best), (entry.margin if ahead is None else ahead)
    return (
        "-" if best is None else f"{best:.3f}",
        "-" if best is None or default is None or not best else f"{default / best:.2f}x",
        "-" if ahead is None else f"{ahead:.1%}",
    )


def _show_entries(out: Output, cache: ScannedCache, filters: Sequence[Filter]) -> None:
    measured = cache.manifest.measured if cache.manifest else {}
    for content in cache.contents:
        files = [file for file in cache.files if file.content is content]
        names = [file.path.name for file in files]
        out.line(f"{_name(cache)}  {names_text(names) or names[0]}", style="bold")
        rows = []
        entries = wanted(content, filters)
        for entry in entries:
            parts = entry.parts
            op, bucket = (parts.op, parts.bucket) if parts else (entry.key, "-")
            row = (op, entry.runner or "-", bucket, tactic_text(entry.tactic))
            rows.append((*row, *_measured_cells(entry, measured.get(entry.key, {}))))
        is_measured = any(cell != "-" for row in rows for cell in row[len(_CHOICE) :])
        columns = (*_CHOICE, *_MEASURED) if is_measured else _CHOICE
        out.table(columns, [row[: len(columns)] for row in rows])
        out.line()


def _stores_beside(out: Output, folder: Path) -> "list[Summary]":
    """Return the stores in a folder; where there are none, as usual, their code is not imported."""
    found = stores_below(out, folder) if folder.is_dir() else []
    if not found:
        return []
    from sgl_tune.stores.describe import summarise

    return summarise(found, keep=False)
