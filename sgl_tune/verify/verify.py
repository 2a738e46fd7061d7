"""Predict what the next server start does with every file of a cache, by checks of the disk alone. Caches
of another FlashInfer or GPU are judged as such: the server never opens them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from runtime.flashinfer.versions import doubt_of, number
from sgl_tune.cache.folder import Way, read_below
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.prune import kin, newest_versions
from sgl_tune.cache.rank_names import RankName
from sgl_tune.units import count, some
from sgl_tune.verify.access import Access, User, own_writing
from sgl_tune.verify.environment import Target, other_driver, unknown_target_finding
from sgl_tune.verify.expected import Checked, Expected
from sgl_tune.verify.files import compare, inferred_groups, missing, read_files
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict, VerifyReport, finding
from sgl_tune.verify.judge import Judge
from sgl_tune.verify.other_readers import looks_before_loading, settle_vllm, verify_managed

_JOURNAL = ".journal"


def verify(caches: Sequence[Checked], target: Target, user: User | None = None) -> VerifyReport:
    """Predict the start on this target. `user`: None for the user who runs this command."""
    elsewhere = [is_elsewhere(checked.cache, target) for checked in caches]
    current = [checked.cache for checked, away in zip(caches, elsewhere, strict=True) if not away]
    used = any(cache.files for cache in current)
    reports = list(_verify_each(target, user, used, list(zip(caches, elsewhere, strict=True))))
    found = [found for report in reports for found in report.findings]
    found += stale_siblings(current)
    if target.metadata is None and caches:
        found.append(unknown_target_finding(target))
    versions = {target.flashinfer} if target.flashinfer else {cache.flashinfer for cache in current}
    doubts = filter(None, map(doubt_of, sorted(filter(None, versions))))
    found += [finding("flashinfer-unknown", doubt) for doubt in doubts]
    return VerifyReport(tuple(file for report in reports for file in report.files), tuple(found))


def _verify_each(
    server: Target, user: User | None, used: bool, caches: Sequence[tuple[Checked, bool]]
) -> Iterator[VerifyReport]:
    """Yield a report for each cache. `caches`: each with True if its server never opens it. `used`: the
    server opens at least one cache."""
    judges: dict[tuple[Expected | None, str | None, bool], Judge] = {}
    with Way() as way:
        for checked, away in caches:
            if away:
                yield verify_elsewhere(checked, server, stale=used)
            elif checked.cache.layout == "flashinfer-v2":
                yield verify_managed(checked.cache, server)
            else:
                target = server.in_folder(checked.cache.flashinfer)
                looks_first = looks_before_loading([file.path.name for file in checked.cache.files])
                asked = (checked.expected, target.flashinfer, looks_first)
                if asked not in judges:
                    judges[asked] = Judge(target, checked.expected, looks_first)
                yield _verify_cache(checked, judges[asked], user, way)


def _verify_cache(checked: Checked, judge: Judge, user: User | None, way: Way) -> VerifyReport:
    cache = checked.cache
    access = Access(user) if user else None
    reports = read_files(cache, judge, access, way)
    there = len(reports)
    found: list[Finding] = []
    if checked.whole and cache.layout == "vllm":
        first = next((one.file.metadata for one in reports.values() if one.file), None)
        found += settle_vllm(cache.path, judge.target.reader(first), reports)
    if checked.whole:
        found += _settle_ranks(checked, reports)
        found += leftovers(cache)
    if cache.layout == "sglang" and cache.files and checked.release.always_saves:
        found += access.writing(cache.path) if access else own_writing(cache.path)
    hidden = sum(one.only_root for one in reports.values())  # FlashInfer's own writer makes them so for root
    if user is None and hidden:
        found.append(
            finding("owner-only", f"only root can read {count(hidden, 'file')} in it", where=cache.path)
        )
    if checked.manifest_problem:
        problem = checked.manifest_problem
        found.append(finding("manifest-broken", problem.message, problem.remedy or "", where=cache.path))
    if checked.manifest:
        found += other_driver(checked.manifest.driver, judge.target)
        found += _changed(cache, checked.manifest, reports.values())
    names = sorted(reports, key=_by_rank) if len(reports) > there else reports
    return VerifyReport(tuple(reports[name]._replace(file=None) for name in names), tuple(found))


def _by_rank(name: str) -> tuple[int, int, int, str]:
    rank = RankName.parse(name)
    return (rank.tp, rank.pp, rank.dp, name) if rank else (0, 0, 0, name)


def _settle_ranks(checked: Checked, reports: dict[str, FileReport]) -> Iterator[Finding]:
    """Add the missing ranks to the reports, and mark the files of a group that a start deletes."""
    cache, expected = checked.cache, checked.expected
    groups = expected.groups if expected else inferred_groups(cache)
    for names in groups:
        for name in names:
            if name not in reports:
                reports[name] = FileReport(cache.path / name, Verdict.MISSING, (missing(expected),))
        seen = [reports[name] for name in names if not reports[name].unread]
        unequal = compare(seen, checked.release.deletes_unequal_ranks)
        if unequal is None:
            continue
        yield unequal.summary
        for one in seen:
            if one.verdict is not Verdict.MISSING:
                verdict = Verdict.DELETED if unequal.deletes else one.verdict
                findings = (unequal.of(one.path), *one.findings)
                reports[one.path.name] = one._replace(verdict=verdict, findings=findings)
    if expected:
        yield from _of_expected(cache, expected, reports)


def _of_expected(cache: Cache, expected: Expected, reports: dict[str, FileReport]) -> Iterator[Finding]:
    if cache.key not in (None, expected.key):
        for name, report in reports.items():  # compared with others, but never loaded by such a start
            if report.verdict in (Verdict.HIT, Verdict.PARTIAL, Verdict.UNKNOWN):
                reports[name] = report._replace(verdict=Verdict.IGNORED)
        message = f"this deployment looks under the key {expected.key}, in {expected.folder}"
        remedy = "compare the parts of the keys: `sgl-tune warm --dry-run`, `sgl-tune inspect`"
        yield finding("other-folder", message, remedy, where=cache.path)
    asked = {name for names in expected.groups for name in names}
    if others := [file.path.name for file in cache.files if file.path.name not in asked]:
        yield finding("rank-unexpected", f"no rank of this deployment reads {some(others)}", where=cache.path)


def leftovers(cache: Cache) -> Iterator[Finding]:
    journals = [path for path in cache.leftovers if path.name.endswith(_JOURNAL)]
    temporaries = len(cache.leftovers) - len(journals)
    if journals:
        message = "a write was interrupted, so the files may be half old and half new"
        yield finding("interrupted-write", message, where=cache.path)
    if temporaries:
        message = f"{count(temporaries, 'temporary file')} of writers that are likely dead"
        yield finding("leftover-temporary", message, where=cache.path)
    if cache.runs:
        message = f"{len(cache.runs)} results in runs/, from starts that reuse nothing"
        yield finding("old-runs", message, where=cache.path)


def _changed(cache: Cache, manifest: Manifest, reports: Iterable[FileReport]) -> Iterator[Finding]:
    digests = {one.path.name: one.file.digest for one in reports if one.file}
    changed = [name for name, digest in digests.items() if manifest.files.get(name, digest) != digest]
    if changed:
        message = f"{some(changed)}: no longer what sgl-tune wrote"
        yield finding("changed-since-written", message, where=cache.path)


def is_elsewhere(cache: Cache, target: Target) -> bool:
    """Whether the cache is in a folder that the target's server does not open, whatever its files say.
    Folders of the managed store are not judged, since their names depend on more than version and
    architecture."""
    if cache.layout == "flashinfer-v2":
        return False
    version = cache.flashinfer and target.flashinfer and cache.flashinfer != target.flashinfer
    arch = cache.arch and target.arch and _capability(cache.arch) != _capability(target.arch)
    return bool(version or arch)


def _capability(arch: str) -> str:
    """Return the digits of an architecture, because SGLang writes sm90 and vLLM writes 90."""
    return "".join(filter(str.isdigit, arch))


def verify_elsewhere(checked: Checked, target: Target, stale: bool) -> VerifyReport:
    """Report a cache that the server never opens. `stale`: the target has other caches, so this one is
    only in the way."""
    cache = checked.cache
    judge = _its_own(cache.flashinfer)
    files = tuple(
        FileReport(file.path, Verdict.IGNORED, tuple(_broken_there(judge, file.path, cache.root)))
        for file in cache.files
    )
    server = ", ".join(filter(None, (target.flashinfer and f"FlashInfer {target.flashinfer}", target.arch)))
    message = f"the server ({server}) never looks in here"
    if stale:
        return VerifyReport(files, (finding("stale-sibling", message, where=cache.path),))
    way_out = checked.expected.way_out if checked.expected else "sgl-tune warm for this server"
    return VerifyReport(files, (finding("other-folder", message, way_out, where=cache.path),))


@lru_cache(maxsize=8)
def _its_own(flashinfer: str | None) -> Judge:
    """Return the judge for the servers that do open such a folder. One judge serves all folders, so that
    equal files are judged once.
    """
    return Judge(Target(None, "its own").in_folder(flashinfer))


def _broken_there(judge: Judge, path: Path, root: Path | None) -> Iterator[Finding]:
    try:
        judged = judge.judge(path, read_below(path, root))
    except OSError:
        return
    if judged.verdict is Verdict.CRASH:
        message = f"a server that does look here: {judged.findings[0].message}"
        yield finding("crash-elsewhere", message, severity=Severity.WARNING)


def stale_siblings(caches: Sequence[Cache]) -> Iterator[Finding]:
    """Yield a finding for each cache of an older FlashInfer beside a cache of a newer one."""
    newest = newest_versions((kin(cache), cache.flashinfer) for cache in caches)
    for cache in caches:
        newer = newest.get(kin(cache))
        if cache.flashinfer and newer and number(cache.flashinfer) < number(newer):
            message = f"there are caches for FlashInfer {newer} too"
            remedy = "sgl-tune prune --stale, once nothing runs the older one"
            yield finding("stale-sibling", message, remedy, where=cache.path)
