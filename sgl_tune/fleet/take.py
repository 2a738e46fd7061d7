"""Read from the disk what this machine holds; limited in size, because the line is sent."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sgl_tune.cache.folder import Way
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.loader import Loaded, load_document
from sgl_tune.fleet.node import Content, HeldCache, HeldStore, Holdings, Told, digest, joined, lookups_of
from sgl_tune.stores.find import Stored, find_stores
from sgl_tune.stores.places import stores_of_this_user, user_here
from sgl_tune.units import count
from sgl_tune.verify.access import own_writing
from sgl_tune.verify.environment import Target, own_environment
from sgl_tune.verify.files import read_files, signature
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict
from sgl_tune.verify.judge import Judge
from sgl_tune.verify.stores import Machine, StoreReport, verify_stores
from sgl_tune.verify.verify import leftovers

MOST_NAMES = 512  # digests of a store's items
_MOST_CACHES, _MOST_FILES, _MOST_CONTENTS = 128, 1024, 64
_MOST_LOOKUPS, _MOST_LETTERS = 2048, 3 << 20
_MOST_FINDINGS = 3
_LONGEST_VALUE = 4096


def take_holdings(
    cache_dir: Path,
    machine: Machine,
    advance: Callable[[], None],
    environment: Mapping[str, str] = os.environ,
) -> Holdings:
    """Return the caches of `cache_dir`, and the stores where a server with it would look."""
    unseen: list[str] = []

    def on_error(error: OSError) -> None:
        unseen.append(f"{error.filename}: {error.strerror}")

    return Holdings(
        str(cache_dir.absolute()),
        user_here(),
        tuple(_caches(cache_dir, on_error, unseen, advance)),
        tuple(_stores(cache_dir, machine, on_error, advance, environment)),
        tuple(unseen),
    )


def _caches(
    cache_dir: Path, on_error: Callable[[OSError], None], unseen: list[str], advance: Callable[[], None]
) -> Iterator[HeldCache]:
    found = find_caches(cache_dir, on_error) if cache_dir.is_dir() else []
    caches = [cache for cache in found if cache.layout == "sglang" and cache.key]
    if len(caches) > _MOST_CACHES:
        unseen.append(f"{count(len(caches) - _MOST_CACHES, 'cache')} more in {cache_dir}")
    letters = _MOST_LETTERS
    for cache in caches[:_MOST_CACHES]:
        held = _cache(cache, cache_dir, letters)
        letters -= sum(len(content.lookups or "") for content in held.contents)
        advance()
        yield held


def _cache(cache: Cache, cache_dir: Path, letters: int) -> HeldCache:
    judge = Judge(Target(None, "").in_folder(cache.flashinfer))
    few = cache._replace(files=cache.files[:_MOST_FILES])
    alike: dict[object, list[FileReport]] = {}
    with Way() as way:
        files = read_files(few, judge, None, way)
    for read in files.values():
        alike.setdefault(read.file.raw if read.file else (read.verdict, read.findings), []).append(read)
    contents = [_content(reads, judge, letters) for reads in list(alike.values())[:_MOST_CONTENTS]]
    folder = [*own_writing(cache.path), *leftovers(cache)]
    path = cache.path.relative_to(cache_dir).as_posix()
    return HeldCache(path, tuple(contents), _told(folder))


def _content(reads: list[FileReport], judge: Judge, letters: int) -> Content:
    judged = reads[0]
    names = tuple(read.path.name for read in reads)
    content = Content(names, judged.verdict.value, findings=_told(judged.findings))
    file = judged.file
    if file is None:
        return replace(content, lookups=None) if judged.unread else content
    reader = judge.target.reader(file.metadata)
    loaded = load_document(file.document, judge.target.for_file(file.metadata), reader)
    found = lookups_of(loaded, reader) if isinstance(loaded, Loaded) else []
    lookups = joined(found, len(found))
    is_much = len(found) > _MOST_LOOKUPS or len(lookups) > letters
    return replace(
        content,
        signature=digest(repr(signature(file))),
        environment=_environment(file.metadata),
        entries=len(file.entries),
        lookups=None if lookups and is_much else lookups,
    )


def _environment(saved: Any) -> dict[str, str] | None:
    if not isinstance(saved, dict):
        return None
    named = own_environment(saved, Target(None, "").reader(saved))
    return {name: value[:_LONGEST_VALUE] for name, value in named.items()}


def _told(found: Iterable[Finding]) -> tuple[Told, ...]:
    """Return the worst findings; remarks are not sent."""
    bad = [one for one in found if one.severity is not Severity.INFO]
    bad.sort(key=lambda one: one.severity is not Severity.ERROR)
    return tuple(map(Told.of, bad[:_MOST_FINDINGS]))


def _stores(
    cache_dir: Path,
    machine: Machine,
    on_error: Callable[[OSError], None],
    advance: Callable[[], None],
    environment: Mapping[str, str],
) -> Iterator[HeldStore]:
    looked_in = stores_of_this_user(None, {**environment, "SGLANG_CACHE_DIR": str(cache_dir)})
    below = find_stores(cache_dir, on_error) if cache_dir.is_dir() else []
    found: dict[tuple[str, Path], Stored] = {}
    for stored in (*looked_in, *below):
        found.setdefault((stored.store, stored.path.absolute()), stored)
    for stored in found.values():
        for report in verify_stores([stored], machine) if stored.store != "driver" else ():
            advance()
            yield _store(report)


def _store(report: StoreReport) -> HeldStore:
    fates = Counter(file.verdict for file in report.files)
    hits = (file for file in report.files if file.verdict in (Verdict.HIT, Verdict.PARTIAL))
    own = (file.path.relative_to(report.stored.path) for file in hits)
    names = (digest("" if path == Path() else path.as_posix()) for path in own)
    found = (*report.findings, *(found for file in report.files for found in file.findings))
    distinct = {(one.code, one.severity): one for one in reversed(found)}
    hit, replaced = fates[Verdict.HIT] + fates[Verdict.PARTIAL], fates[Verdict.REPLACED]
    numbers = (hit, replaced, fates[Verdict.IGNORED], fates[Verdict.CRASH])
    path, findings = str(report.stored.path), _told(distinct.values())
    return HeldStore(report.store, path, *numbers, joined(names, MOST_NAMES), findings)
