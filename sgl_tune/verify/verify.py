"""What the next server start does with every file of a cache: pure checks over what is on the disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.folder import Slurped, Way, reader
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.rank_names import RankName
from sgl_tune.units import count
from sgl_tune.verify.access import Access, User, only_root_reads, own_writing
from sgl_tune.verify.elsewhere import is_elsewhere, stale_siblings, verify_elsewhere
from sgl_tune.verify.entries import some
from sgl_tune.verify.environment import Target, other_driver, unknown_target_finding, unread_versions
from sgl_tune.verify.expected import WARM, Checked, Expected
from sgl_tune.verify.findings import FileReport, Finding, Verdict, VerifyReport, finding
from sgl_tune.verify.judge import Judge, Judged
from sgl_tune.verify.links import followed, read_through, unread
from sgl_tune.verify.managed import verify_managed
from sgl_tune.verify.ranks import Member, compare, inferred_groups
from sgl_tune.verify.vllm import looks_before_loading, settle_vllm

_JOURNAL = ".journal"


class Server(NamedTuple):
    """The start that is predicted. `user` is None for whoever runs this."""

    target: Target
    user: User | None = None


class Read(NamedTuple):
    """`blocked`: why the server's user cannot read it."""

    path: Path
    judged: Judged
    blocked: tuple[Finding, ...] = ()
    only_root: bool = False

    @property
    def member(self) -> Member:
        """As the other ranks of its group see it."""
        file = None if self.blocked else self.judged.file
        return Member(self.path, self.judged.verdict is not Verdict.MISSING, file)

    @property
    def report(self) -> FileReport:
        if self.blocked:
            return FileReport(self.path, Verdict.CRASH, (*self.blocked, *self.judged.findings))
        return FileReport(self.path, self.judged.verdict, self.judged.findings)


def verify(caches: Sequence[Checked], server: Server) -> VerifyReport:
    elsewhere = [is_elsewhere(checked.cache, server.target) for checked in caches]
    current = [checked.cache for checked, away in zip(caches, elsewhere, strict=True) if not away]
    used = any(cache.files for cache in current)
    placed = list(zip(caches, elsewhere, strict=True))
    reports = list(_verify_each(server, used, placed))
    found = [found for report in reports for found in report.findings]
    found += stale_siblings(current)
    if server.target.metadata is None and caches:
        found.append(unknown_target_finding(server.target))
    versions = {server.target.flashinfer} if server.target.flashinfer else {c.flashinfer for c in current}
    found += unread_versions(sorted(filter(None, versions)))
    return VerifyReport(tuple(file for report in reports for file in report.files), tuple(found))


def _verify_each(
    server: Server, used: bool, caches: Sequence[tuple[Checked, bool]]
) -> Iterator[VerifyReport]:
    """Each with whether its server looks elsewhere; `used`: whether there are caches where it does look."""
    judges: dict[tuple[Expected | None, str | None, bool], Judge] = {}
    with Way() as way:
        for checked, away in caches:
            if away:
                yield verify_elsewhere(checked, server.target, stale=used)
            elif checked.cache.layout == "flashinfer-v2":
                yield verify_managed(checked.cache, server.target)
            else:
                target = server.target.in_folder(checked.cache.flashinfer)
                looks_first = looks_before_loading([file.path.name for file in checked.cache.files])
                asked = (checked.expected, target.flashinfer, looks_first)
                if asked not in judges:
                    judges[asked] = Judge(target, checked.expected, looks_first)
                yield _verify_cache(checked, judges[asked], server.user, way)


def _verify_cache(checked: Checked, judge: Judge, user: User | None, way: Way) -> VerifyReport:
    cache = checked.cache
    access = Access(user) if user else None
    read = read_files(cache, judge, access, way)
    reports = {name: item.report for name, item in read.items()}
    found: list[Finding] = []
    if checked.whole and cache.layout == "vllm":
        files = {name: item.judged.file for name, item in read.items()}
        reader = judge.target.reader(next((file.metadata for file in files.values() if file), None))
        found += settle_vllm(cache.path, files, reader, reports)
    if checked.whole:
        found += _settle_ranks(checked, read, reports)
        found += leftovers(cache)
    if cache.layout == "sglang" and cache.files and checked.release.always_saves:
        found += access.writing(cache.path) if access else own_writing(cache.path)
    if user is None:
        found += only_root_reads(cache.path, sum(item.only_root for item in read.values()))
    found += _manifest_findings(checked, read.values(), judge.target)
    names = sorted(reports, key=_by_rank) if len(reports) > len(read) else reports
    return VerifyReport(tuple(reports[name] for name in names), tuple(found))


def _missing(expected: Expected | None) -> Finding:
    message = "there is no such file: the rank has nothing to load, so the server tunes"
    return finding("rank-missing", message, expected.way_out if expected else WARM)


def _by_rank(name: str) -> tuple[int, int, int, str]:
    rank = RankName.parse(name)
    return (rank.tp, rank.pp, rank.dp, name) if rank else (0, 0, 0, name)


def read_files(cache: Cache, judge: Judge, access: Access | None, way: Way) -> dict[str, Read]:
    def refused(path: Path) -> Slurped:
        raise closed

    root = cache.root or cache.path
    try:
        read = reader(cache.path, way, cache.root)
        return {file.path.name: _read(file.path, root, read, judge, access) for file in cache.files}
    except OSError as error:
        closed = error
        return {file.path.name: _read(file.path, root, refused, judge, access) for file in cache.files}


def _read(
    path: Path, root: Path, read: Callable[[Path], Slurped], judge: Judge, access: Access | None
) -> Read:
    blocked = tuple(access.reading(path)) if access else ()
    try:
        status, raw = read(path)
    except FileNotFoundError:
        return Read(path, Judged(Verdict.MISSING, (_missing(judge.wants),)), blocked)
    except OSError as error:
        message = f"it cannot be read here ({error.strerror})"
        remedy = "run as a user who may, or repair the file's mode"
        if error.errno == errno.EOVERFLOW:
            remedy = "delete it, and warm again"
        return Read(path, Judged(Verdict.CRASH, (finding("not-readable", message, remedy),)), blocked)
    if raw is None and stat.S_ISLNK(status.st_mode):
        return Read(path, _linked(path, root, judge), blocked)
    if raw is None:
        return Read(path, _not_a_file(status), blocked)
    return Read(path, judge.judge(path, raw), blocked, status.st_uid == 0 and not status.st_mode & 0o044)


def _linked(path: Path, root: Path, judge: Judge) -> Judged:
    raw = read_through(path, root)
    if raw is None:
        verdict, why = unread(path)
        return Judged(verdict, (why,), unread=verdict is Verdict.PARTIAL)
    judged = judge.judge(path, raw)
    return judged._replace(findings=(followed(path), *judged.findings))


def _not_a_file(status: os.stat_result) -> Judged:
    """The server looks for a file, finds none, tunes, and moves its own into place: no folder gives way."""
    if stat.S_ISDIR(status.st_mode):
        message = "it is a folder: the server dies with IsADirectoryError when it saves"
        return Judged(Verdict.CRASH, (finding("not-a-file", message, "remove it"),))
    message = "it is no regular file: the server tunes and puts a file in its place"
    return Judged(Verdict.REPLACED, (finding("not-a-file", message, "remove it"),))


def _settle_ranks(
    checked: Checked, read: dict[str, Read], reports: dict[str, FileReport]
) -> Iterator[Finding]:
    """Adds the missing ranks to the reports, and makes deleted ones of the files of a group that differs."""
    cache = checked.cache
    groups = checked.expected.groups if checked.expected else inferred_groups(cache)
    unseen = {name for name, item in read.items() if item.judged.unread}
    for names in groups:
        members = [
            read[name].member if name in read else Member(cache.path / name, False, None) for name in names
        ]
        for name in names:
            if name not in reports:
                reports[name] = FileReport(cache.path / name, Verdict.MISSING, (_missing(checked.expected),))
        seen = [member for member in members if member.path.name not in unseen]
        unequal = compare(seen, checked.release.deletes_unequal_ranks)
        if unequal is None:
            continue
        yield unequal.summary
        for member in seen:
            report = reports[member.path.name]
            if member.present:
                verdict = Verdict.DELETED if unequal.deletes else report.verdict
                findings = (unequal.of(member.path), *report.findings)
                reports[member.path.name] = FileReport(member.path, verdict, findings)
    if checked.expected:
        if cache.key not in (None, checked.expected.key):
            _ignore_all(reports)
        yield from _in_another_folder(cache, checked.expected)
        yield from _unexpected(cache, {name for names in groups for name in names})


def _ignore_all(reports: dict[str, FileReport]) -> None:
    """They lie under another key: what they hold is compared, and no such start loads them."""
    for name, report in reports.items():
        if report.verdict in (Verdict.HIT, Verdict.PARTIAL):
            reports[name] = report._replace(verdict=Verdict.IGNORED)


def _in_another_folder(cache: Cache, expected: Expected) -> Iterator[Finding]:
    if cache.key not in (None, expected.key):
        message = f"this deployment looks under the key {expected.key}, in {expected.folder}"
        remedy = "compare the parts of the keys: `sgl-tune warm --dry-run`, `sgl-tune inspect`"
        yield finding("other-folder", message, remedy, where=cache.path)


def _unexpected(cache: Cache, expected: set[str]) -> Iterator[Finding]:
    others = [file.path.name for file in cache.files if file.path.name not in expected]
    if others:
        message = f"no rank of this deployment reads {some(others)}"
        remedy = "remove them, unless another node reads this folder too"
        yield finding("rank-unexpected", message, remedy, where=cache.path)


def leftovers(cache: Cache) -> Iterator[Finding]:
    journals = [path for path in cache.leftovers if path.name.endswith(_JOURNAL)]
    temporaries = len(cache.leftovers) - len(journals)
    if journals:
        message = "a write was interrupted, so the files may be half old and half new"
        remedy = "the next `sgl-tune warm` or `prune` finishes it"
        yield finding("interrupted-write", message, remedy, where=cache.path)
    if temporaries:
        message = f"{count(temporaries, 'temporary file')} of writers that are likely dead"
        yield finding("leftover-temporary", message, "sgl-tune prune --stale", where=cache.path)
    if cache.runs:
        message = f"{len(cache.runs)} results in runs/, of starts that were told to reuse nothing"
        yield finding("old-runs", message, "sgl-tune prune --stale", where=cache.path)


def _manifest_findings(checked: Checked, read: Iterable[Read], target: Target) -> Iterator[Finding]:
    problem = checked.manifest_problem
    if problem:
        yield finding(
            "manifest-broken", problem.message, problem.remedy or "delete it", where=checked.cache.path
        )
    if checked.manifest is None:
        return
    yield from other_driver(checked.manifest.driver, target)
    changed = list(_changed(checked.manifest, read))
    if changed:
        message = f"{some(changed)}: no longer what sgl-tune wrote"
        remedy = "nothing to do if a server tuned on and saved"
        yield finding("changed-since-written", message, remedy, where=checked.cache.path)


def _changed(manifest: Manifest, read: Iterable[Read]) -> Iterator[str]:
    for item in read:
        written = manifest.files.get(item.path.name)
        if written and item.judged.file and item.judged.file.digest != written:
            yield item.path.name
