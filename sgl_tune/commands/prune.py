"""`sgl-tune prune`: show which caches are no longer needed and why, then remove them."""

import os
import time
from pathlib import Path
from typing import Annotated

from sgl_tune.asking.kept import kept_here
from sgl_tune.cache.disk import kind_of
from sgl_tune.cache.layouts.cache import KEY, Cache
from sgl_tune.cache.layouts.find import find_caches, resolve
from sgl_tune.cache.prune import Removal, Rules, plan
from sgl_tune.cache.remove import Removed, remove, settle
from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import Ended, UsageError, WorkFailed
from sgl_tune.stores.find import store_asked_for
from sgl_tune.stores.prune import Gone, StoreRules, prune_stores, sweep_and_tell, tell
from sgl_tune.units import count, human_bytes, parse_age, parse_limit
from sgl_tune.verify.files import unusable_files


def prune(
    folder: Annotated[
        Path | None, Argument(metavar="FOLDER|KEY", help="Only caches below this folder, or with this key.")
    ] = None,
    stale: Annotated[
        bool,
        Option(
            "--stale",
            help="Caches of an older FlashInfer than others here; what dead writers and old runs left.",
        ),
    ] = False,
    unusable: Annotated[
        bool, Option("--unusable", help="Files that make every server that reads them fail.")
    ] = False,
    older_than: Annotated[
        str | None, Option("--older-than", metavar="AGE", help="Not written for this long: 30d, 12h.")
    ] = None,
    max_size: Annotated[
        str | None,
        Option("--max-size", metavar="SIZE", help="Remove the least recently used until SIZE is met: 1GB."),
    ] = None,
    store: Annotated[
        str | None, Option("--store", metavar="ID|all", help="Prune stores of compiled kernels, not caches.")
    ] = None,
    library: Annotated[
        list[str] | None,
        Option(
            "--library",
            metavar="NAME=X.Y.Z",
            help="Only caches of this flashinfer=X.Y.Z, or arch=sm90; with --store also triton=X.Y.Z, ...",
        ),
    ] = None,
    answers: Annotated[
        bool,
        Option("--answers", help="Remove kept answers of servers: all, or only until --max-size is met."),
    ] = False,
    keep: Annotated[
        list[str] | None,
        Option("--keep", metavar="KEY", help="Keep this cache: its key or a prefix. Repeatable."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be removed.")] = False,
    yes: Annotated[bool, Option("-y", "--yes", help="Do not ask.")] = False,
    cache_dir: CacheDirOption = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Remove caches from the disk. If several rules are given, only caches that match all of them go.

    Caches that are being written are left alone, and so are files that neither a server nor sgl-tune wrote.
    --store removes items of stores of compiled kernels instead.

    Example: sgl-tune prune --stale --dry-run

    Example: sgl-tune prune 4aaede739ed1db5a
    """
    out = Output(sink(format, quiet))
    age = parse_age(older_than, "--older-than") if older_than else None
    size = parse_limit(max_size, "--max-size") if max_size else None
    if answers:
        _prune_answers(out, size or 0, dry_run)
        return
    only, versions = store_asked_for(store), _libraries(library or [])
    arch = versions.pop("arch", None)
    if only and unusable:
        raise UsageError("--unusable is about rank files, --store about kernels", "give one of them")
    if only:
        of_stores = StoreRules(stale, age, versions, arch, size)
        prune_stores(out, folder or cache_dir, only, of_stores, dry_run, yes)
        return
    if unusable and (stale or max_size):
        raise UsageError("--unusable is about single files", "leave out --stale and --max-size")
    if versions.keys() - {"flashinfer"}:
        raise UsageError("libraries other than flashinfer are for stores", "add --store ID, or --store all")
    rules = Rules(
        stale=stale,
        older_than=age,
        flashinfer=versions.get("flashinfer"),
        arch=arch,
        max_size=size,
        keep=tuple(keep or ()),
        key=_key(folder, cache_dir or default_cache_dir()),
        unusable=unusable_files if unusable else None,
    )
    if rules.choose_nothing:
        raise UsageError(
            "prune needs a rule", "a KEY, --stale, --unusable, --older-than 30d or --max-size 1GB"
        )
    root = (None if rules.key else folder) or cache_dir or default_cache_dir()
    caches = _caches(root)
    if not dry_run:
        for text in dict.fromkeys(settle(caches, root)):
            out.note(text)
        caches = _caches(root)
    removals = plan(caches, rules, time.time())
    if removals and not dry_run and not yes:
        _show_plan(out, removals)
        if not out.confirm(f"Remove {_total(removals)}?"):
            out.note("Nothing was removed.")
            raise Ended(0)
    sweep_and_tell(out, root, dry_run, deep=False)
    results = [(removal, Removed() if dry_run else remove(removal, root)) for removal in removals]
    for text in dict.fromkeys(note for _, removed in results for note in removed.notes):
        out.note(text)
    _report(out, results, dry_run, shown=dry_run or yes)


def _prune_answers(out: Output, most_bytes: int, dry_run: bool) -> None:
    """Remove kept records and kernels without a question, because asking the server again restores them."""
    kept = kept_here()
    found = kept.beyond(most_bytes)
    if not dry_run:
        kept.forget(most_bytes)
    layouts = {path: "kernels" if kept.is_kernel(path) else "answers" for path in found}
    gone = [
        Gone("answers", str(path), layouts[path], path.stem, True, (str(path),), size, "asked for")
        for path, size in found.items()
    ]
    kernels = sum(kept.is_kernel(path) for path in found)
    compiled = f", {count(kernels, 'file')} of compiled kernels" if kernels else ""
    told = f"{count(len(found) - kernels, 'answer')}{compiled}, {human_bytes(sum(found.values()))}"
    tell(out, gone, (), dry_run, told, lambda: None)


def _key(named: Path | None, cache_dir: Path) -> str:
    """Return `named` if a cache here has a key that begins with it, "" for a path; refuse any other text."""
    if named is None or os.path.lexists(named) or not KEY.fullmatch(str(named)):
        return ""
    resolve(str(named), cache_dir)
    return str(named)


def _libraries(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, version = text.partition("=")
        if not (name and equals and version):
            raise UsageError(f"--library {text} is no NAME=VERSION", "write it like --library triton=3.5.0")
        found[name] = version
    return found


def _caches(root: Path) -> list[Cache]:
    if not root.is_dir():
        what = f"{kind_of(root)}, not a folder" if root.exists() else "no such folder"
        raise UsageError(f"{root}: {what}", "`sgl-tune inspect` shows where caches are")
    return find_caches(root)


def _total(removals: list[Removal]) -> str:
    files = sum(len(removal.files) for removal in removals)
    return f"{count(files, 'file')}, {human_bytes(sum(removal.bytes for removal in removals))}"


def _show_plan(out: Output, removals: list[Removal]) -> None:
    rows = [(r.cache.path, len(r.files), human_bytes(r.bytes), r.reason) for r in removals]
    out.table(columns_of("CACHE/", ">FILES", ">SIZE", "WHY"), rows)


def _report(out: Output, results: list[tuple[Removal, Removed]], dry_run: bool, shown: bool) -> None:
    chosen = [removal for removal, result in results if not result.skipped]
    gone = []
    for one in chosen:
        named = ("tactics", str(one.cache.path), one.cache.layout, one.cache.key)
        files = tuple(map(str, one.files))
        gone.append(Gone(*named, one.whole, files, one.bytes, one.reason))
    left = [(removal.cache.path, result.skipped) for removal, result in results if result.skipped]
    tell(out, gone, left, dry_run, _total(chosen), lambda: _show_plan(out, chosen) if shown else None)
    for path, why in left:
        out.warn(f"{path}: left alone, {why}")
    failed = [result for _, result in results if result.failed]
    if failed:
        raise WorkFailed(f"{count(len(failed), 'cache')} could not be removed", "see the warnings above")
