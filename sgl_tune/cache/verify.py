"""What the next server start does with every file of a cache: pure checks over what is on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.sizing import release
from sgl_tune.cache.access import Access, User, current_user, owner_only
from sgl_tune.cache.entries import some
from sgl_tune.cache.environment import Target, other_driver, unknown_target_finding
from sgl_tune.cache.expected import Checked, Expected
from sgl_tune.cache.findings import FileReport, Finding, Report, Verdict, finding
from sgl_tune.cache.judge import Judge, Judged
from sgl_tune.cache.keys import TunedOp
from sgl_tune.cache.layouts import Cache, RankName
from sgl_tune.cache.managed import verify_managed
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.ranks import Member, compare, inferred_groups
from sgl_tune.cache.siblings import is_elsewhere, stale_siblings, verify_elsewhere

SAVES_SINCE = (0, 5, 21)
_JOURNAL = ".journal"
_MISSING = finding(
    "rank-missing",
    "there is no such file: the rank has nothing to load, so the server tunes",
    "sgl-tune warm with the server's own flags",
)


@dataclass(frozen=True)
class Server:
    """The start that is predicted. `user` is None for whoever runs this."""

    target: Target
    user: User | None = None


@dataclass(frozen=True)
class _Read:
    path: Path
    judged: Judged
    blocked: tuple[Finding, ...] = ()


def verify(caches: Sequence[Checked], server: Server) -> Report:
    current = [checked for checked in caches if not is_elsewhere(checked.cache, server.target)]
    used = any(checked.cache.files for checked in current)
    judges: dict[tuple[tuple[TunedOp, ...], str | None], Judge] = {}
    files: list[FileReport] = []
    found: list[Finding] = []
    for checked in caches:
        ops = checked.expected.ops if checked.expected else ()
        target = server.target.in_folder(checked.cache.flashinfer)
        judge = judges.setdefault((ops, target.flashinfer), Judge(target, ops))
        if checked not in current:
            report = verify_elsewhere(checked.cache, server.target, stale=used)
        elif checked.cache.layout == "flashinfer-v2":
            report = verify_managed(checked.cache, server.target)
        else:
            report = _verify_cache(checked, judge, server.user)
        files.extend(report.files)
        found.extend(report.findings)
    found += stale_siblings([checked.cache for checked in current])
    if server.target.metadata is None:
        found.append(unknown_target_finding())
    return Report(tuple(files), tuple(found))


def _verify_cache(checked: Checked, judge: Judge, user: User | None) -> Report:
    cache = checked.cache
    access = Access(user) if user else None
    read = {file.path: _read(file.path, judge, access) for file in cache.files}
    reports = {item.path: _report(item) for item in read.values()}
    found: list[Finding] = []
    if checked.whole:
        found += _settle_ranks(checked, read, reports)
        found += _leftovers(cache)
    if cache.layout == "sglang" and cache.files and release(checked.sglang) >= SAVES_SINCE:
        found += (access or Access(current_user())).writing(cache.path)
    if user is None:
        found += owner_only([file.path for file in cache.files])
    found += _manifest_findings(checked, read, judge.target)
    return Report(tuple(sorted(reports.values(), key=_by_rank)), tuple(found))


def _by_rank(report: FileReport) -> tuple[int, int, int, str]:
    rank = RankName.parse(report.path.name)
    return (rank.pp, rank.dp, rank.tp, "") if rank else (0, 0, 0, report.path.name)


def _read(path: Path, judge: Judge, access: Access | None) -> _Read:
    blocked = tuple(access.reading(path)) if access else ()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return _Read(path, Judged(Verdict.MISSING, (_MISSING,)), blocked)
    except OSError as error:
        message = f"it cannot be read here ({error.strerror})"
        remedy = "run as a user who may, or repair the file's mode"
        return _Read(path, Judged(Verdict.CRASH, (finding("not-readable", message, remedy),)), blocked)
    return _Read(path, judge.judge(path, raw), blocked)


def _report(read: _Read) -> FileReport:
    verdict = Verdict.CRASH if read.blocked else read.judged.verdict
    return FileReport(read.path, verdict, (*read.blocked, *read.judged.findings))


def _settle_ranks(
    checked: Checked, read: dict[Path, _Read], reports: dict[Path, FileReport]
) -> list[Finding]:
    """Adds the missing ranks to the reports, and makes deleted ones of the files of a group that differs."""
    cache = checked.cache
    found: list[Finding] = []
    groups = checked.expected.groups if checked.expected else inferred_groups(cache)
    for names in groups:
        members = [_member(cache.path / name, read) for name in names]
        for member in members:
            if not member.present:
                reports[member.path] = FileReport(member.path, Verdict.MISSING, (_MISSING,))
        unequal = compare(members, release(checked.sglang))
        if unequal is None:
            continue
        found.append(unequal.summary)
        for member in members:
            report = reports[member.path]
            if member.present:
                verdict = Verdict.DELETED if unequal.deletes else report.verdict
                findings = (unequal.of(member.path), *report.findings)
                reports[member.path] = FileReport(member.path, verdict, findings)
    if checked.expected:
        found += _in_another_folder(cache, checked.expected)
        found += _unexpected(cache, {name for names in groups for name in names})
    return found


def _member(path: Path, read: dict[Path, _Read]) -> Member:
    item = read.get(path)
    present = item is not None and item.judged.verdict is not Verdict.MISSING
    usable = item is not None and present and not item.blocked
    return Member(path, present, item.judged.file if item and usable else None)


def _in_another_folder(cache: Cache, expected: Expected) -> list[Finding]:
    if cache.key in (None, expected.key):
        return []
    message = f"{cache.path}: this deployment looks under the key {expected.key}, in {expected.folder}"
    remedy = "compare the parts of the key: `sgl-tune warm --dry-run` shows them, `inspect` those of a cache"
    return [finding("other-folder", message, remedy)]


def _unexpected(cache: Cache, expected: set[str]) -> list[Finding]:
    others = [file.path.name for file in cache.files if file.path.name not in expected]
    if not others:
        return []
    message = f"{cache.path}: no rank of this deployment reads {some(others)}"
    return [finding("rank-unexpected", message, "remove them, unless another node reads this folder too")]


def _leftovers(cache: Cache) -> Iterator[Finding]:
    journals = [path for path in cache.leftovers if path.name.endswith(_JOURNAL)]
    temporaries = [path for path in cache.leftovers if path not in journals]
    if journals:
        message = f"{cache.path}: a write was interrupted, so the files may be half old and half new"
        yield finding("interrupted-write", message, "the next `sgl-tune warm` or `prune` finishes it")
    if temporaries:
        message = f"{cache.path}: {len(temporaries)} temporary files of killed writers"
        yield finding("leftover-temporary", message, "sgl-tune prune --stale")
    if cache.runs:
        message = (
            f"{cache.path / 'runs'}: {len(cache.runs)} results of starts that were told to reuse nothing"
        )
        yield finding("old-runs", message, "sgl-tune prune --stale")


def _manifest_findings(checked: Checked, read: dict[Path, _Read], target: Target) -> Iterator[Finding]:
    problem = checked.manifest_problem
    if problem:
        yield finding("manifest-broken", problem.message, problem.remedy or "delete it")
    if checked.manifest is None:
        return
    yield from other_driver(checked.manifest.driver, target)
    changed = list(_changed(checked.manifest, read.values()))
    if changed:
        message = f"{checked.cache.path}: {some(changed)}: no longer what sgl-tune wrote"
        yield finding("changed-since-written", message, "nothing to do if a server tuned on and saved")


def _changed(manifest: Manifest, read: Iterable[_Read]) -> Iterator[str]:
    for item in read:
        written = manifest.files.get(item.path.name)
        if written and item.judged.file and item.judged.file.digest != written:
            yield item.path.name
