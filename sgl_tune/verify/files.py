"""Read the rank files of a cache on the disk, judge their contents, and find the files that a server
compares, the effect of a difference, and the missing files."""

import errno
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runtime.flashinfer.versions import METADATA
from sgl_tune.cache.folder import Slurped, Way, read_below, reader
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.rank_names import LARGEST_GROUP, RankName, width_of
from sgl_tune.cache.record import RESERVED, CacheFile
from sgl_tune.reading import is_file
from sgl_tune.units import some
from sgl_tune.verify.access import Access
from sgl_tune.verify.entries import cut, entry_name
from sgl_tune.verify.environment import UNTOLD
from sgl_tune.verify.expected import WARM, Expected
from sgl_tune.verify.findings import UNUSABLE, FileReport, Finding, Severity, Verdict, finding
from sgl_tune.verify.judge import Judge
from sgl_tune.verify.other_readers import looks_before_loading, verify_managed


def read_files(cache: Cache, judge: Judge, access: Access | None, way: Way) -> dict[str, FileReport]:
    """Read and judge the files of a cache; return them by name."""

    def refused(path: Path) -> Slurped:
        raise closed

    root = cache.root or cache.path
    try:
        read = reader(cache.path, way, cache.root)
        return {file.path.name: _read(file.path, root, read, judge, access) for file in cache.files}
    except OSError as error:
        closed = error
        return {file.path.name: _read(file.path, root, refused, judge, access) for file in cache.files}


def unusable_files(cache: Cache) -> Iterator[Path]:
    """Yield the files that crash the server they were tuned for, or fail in its kernels. Links and files
    that cannot be read here are not judged."""
    if cache.layout == "flashinfer-v2":
        reports = verify_managed(cache, UNTOLD).files
    else:
        names = [file.path.name for file in cache.files]
        judge = Judge(UNTOLD.in_folder(cache.flashinfer), None, looks_before_loading(names))
        with Way() as way:
            reports = tuple(read_files(cache, judge, None, way).values())
    for report in reports:
        codes = {found.code for found in report.findings}
        is_read = report.verdict in (Verdict.CRASH, Verdict.PARTIAL) and "is-a-link" not in codes
        if is_read and codes & UNUSABLE:
            yield report.path


def missing(expected: Expected | None) -> Finding:
    message = "there is no such file, so the server tunes"
    return finding("rank-missing", message, expected.way_out if expected else WARM)


def _read(
    path: Path, root: Path, read: Callable[[Path], Slurped], judge: Judge, access: Access | None
) -> FileReport:
    blocked = access.reading(path) if access else []
    judged = _judged(path, root, read, judge)
    if not blocked:
        return judged
    return judged._replace(verdict=Verdict.CRASH, findings=(*blocked, *judged.findings), blocked=True)


def _judged(path: Path, root: Path, read: Callable[[Path], Slurped], judge: Judge) -> FileReport:
    try:
        status, raw = read(path)
    except FileNotFoundError:
        return FileReport(path, Verdict.MISSING, (missing(judge.wants),))
    except OSError as error:
        message = f"it cannot be read here ({error.strerror})"
        remedy = "delete it, and warm again" if error.errno == errno.EOVERFLOW else ""
        return FileReport(path, Verdict.CRASH, (finding("not-readable", message, remedy),))
    if raw is not None:
        only_root = status.st_uid == 0 and not status.st_mode & 0o044
        return judge.judge(path, raw)._replace(only_root=only_root)
    if stat.S_ISLNK(status.st_mode):
        return _linked(path, root, judge)
    # The server finds no file, tunes, and moves its own file into this place; a folder would stay.
    if stat.S_ISDIR(status.st_mode):
        found = finding("not-a-file", "it is a folder: the server dies with IsADirectoryError when it saves")
        return FileReport(path, Verdict.CRASH, (found,))
    found = finding("not-a-file", "it is no regular file: the server tunes and puts a file in its place")
    return FileReport(path, Verdict.REPLACED, (found,))


def _linked(path: Path, root: Path, judge: Judge) -> FileReport:
    """Judge a link. A server follows it. Here it is followed only inside the cache: a file outside is not
    opened, only its status is read."""
    link = f"it is a link to {_target(path)}"
    raw = _read_through(path, root)
    if raw is not None:
        judged = judge.judge(path, raw)
        message = f"{link}: the server loads that, and its next save ends the link"
        followed = finding("is-a-link", message, "nothing to do, or put the file itself in its place")
        return judged._replace(findings=(followed, *judged.findings))
    if is_file(path):
        message = f"{link}: the server loads that; it is outside of the cache, and is not read here"
        found = finding("is-a-link", message, severity=Severity.ERROR)
        return FileReport(path, Verdict.PARTIAL, (found,), unread=True)
    message = f"{link}, where no file is: the server tunes, and puts one in its place"
    return FileReport(path, Verdict.REPLACED, (finding("is-a-link", message, "remove it", Severity.ERROR),))


def _read_through(path: Path, root: Path) -> bytes | None:
    inside, real = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    try:
        return read_below(real, inside) if real.is_relative_to(inside) else None
    except OSError:
        return None


def _target(path: Path) -> str:
    try:
        return str(path.readlink())[:200]
    except OSError:  # removed meanwhile
        return "somewhere"


class Disagreement(NamedTuple):
    """A difference in a group. `odd`: how a path differs from most. `deletes`: the start deletes all."""

    summary: Finding
    odd: Mapping[Path, str]
    deletes: bool

    def of(self, path: Path) -> Finding:
        message = self.odd.get(path, "other ranks of its group differ from it")
        return finding("ranks-differ", message, severity=self.summary.severity)


def compare(members: Sequence[FileReport], deletes: bool) -> Disagreement | None:
    """Compare the files as the ranks of a TP group do: by parsed content; an unreadable file is none."""
    if len({id(member.served) for member in members}) <= 1:
        return None
    contents = [signature(member.served) for member in members]
    if len(set(contents)) <= 1:
        return None
    usual = Counter(content for content in contents if content[1]).most_common(1)[0][0]
    model = members[contents.index(usual)]
    odd = {
        member.path: _oddity(member, model)
        for member, content in zip(members, contents, strict=True)
        if content != usual
    }
    fate = (
        "SGLang since 0.5.19 deletes every file of the group at its start and tunes from scratch"
        if deletes
        else "every rank loads its own; SGLang since 0.5.19 would delete them all"
    )
    who = some([f"{_rank(path)} {how}" for path, how in odd.items()])
    severity = Severity.ERROR if deletes else Severity.WARNING
    message = f"the ranks of a group are not equal: {who}; {fate}"
    summary = finding("ranks-differ", message, severity=severity, where=model.path.parent)
    return Disagreement(summary, odd, deletes)


def signature(file: CacheFile | None) -> tuple[str | None, str]:
    """Return the file's content as SGLang compares it: order and white space do not count."""
    return (None, "") if file is None else (file.computed_generation, _text(file.generation))


def _oddity(member: FileReport, model: FileReport) -> str:
    if member.verdict is Verdict.MISSING:
        return "is missing"
    ours, theirs = model.served, member.served
    if ours is None or theirs is None:
        return "cannot be read"
    names = [f"{entry_name(key)} (lacks it)" for key in ours.entries if key not in theirs.entries]
    names += [f"{entry_name(key)} (alone has it)" for key in theirs.entries if key not in ours.entries]
    names += _changes(ours, theirs, _differ) or _changes(ours, theirs, _differ_as_text)
    return f"differs from {_rank(model.path)} in {some(names)}"


def _changes(ours: CacheFile, theirs: CacheFile, differ: Callable[[Any, Any], bool]) -> list[str]:
    names = [
        f"{entry_name(key)} (tactic {_tactic(theirs.entries[key])}, not {_tactic(value)})"
        for key, value in ours.entries.items()
        if key in theirs.entries and differ(value, theirs.entries[key])
    ]
    for name in sorted(RESERVED):
        mine, its = ours.document.get(name), theirs.document.get(name)
        if differ(mine, its):
            names.append(name + _fields(name, mine, its))
    return names


def _differ(one: Any, other: Any) -> bool:
    """Whether two values differ. Fast, but wrong for values that are equal in Python and not in JSON."""
    return one != other and _differ_as_text(one, other)


def _differ_as_text(one: Any, other: Any) -> bool:
    """Whether two values differ as JSON, as SGLang compares: True is not 1, and 1 is not 1.0."""
    return _text(one) != _text(other)


def _fields(name: str, mine: Any, its: Any) -> str:
    if name != METADATA or not (isinstance(mine, dict) and isinstance(its, dict)):
        return ""
    changed = [field for field in {**mine, **its} if _differ_as_text(mine.get(field), its.get(field))]
    return f" ({some(changed)})"


def _tactic(value: Any) -> str:
    return cut(_text(value[1] if isinstance(value, list) and len(value) > 1 else value), 24)


def _text(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return "(nested too deep)"


def _rank(path: Path) -> str:
    return path.name.removesuffix(".json")


def inferred_groups(cache: Cache) -> list[tuple[str, ...]]:
    """Return the groups that the file names imply, with missing ranks and stages that lack a rank."""
    if len(cache.files) == 1 and cache.files[0].rank:
        return [(cache.files[0].rank.filename,)]
    groups = cache.groups()
    ranks = [[file.rank for file in group if file.rank] for group in groups]
    numbers = {rank.tp for group in ranks for rank in group}
    if max(numbers, default=0) >= LARGEST_GROUP or any(rank.gpu for group in ranks for rank in group):
        return [tuple(file.path.name for file in group) for group in groups]
    wanted = range(min(numbers), max(numbers) + 1) if numbers else range(0)
    dp_of = _dp_of([rank for group in ranks for rank in group])
    return [tuple(_group_names(group, wanted, dp_of)) for group in ranks if group]


def _group_names(group: Sequence[RankName], wanted: range, dp_of: Mapping[int, int]) -> Iterable[str]:
    present = {rank.tp: rank for rank in group}
    for tp in wanted:
        rank = present.get(tp)
        if rank is None:
            same = {known.dp for known in group}
            rank = RankName(tp, group[0].pp, same.pop() if len(same) == 1 else dp_of.get(tp, tp))
        yield rank.filename


def _dp_of(ranks: Sequence[RankName]) -> dict[int, int]:
    """Return the DP rank of each TP rank. With DP attention, neighbours share a DP rank, so that the rank
    of a missing file follows from the others."""
    known = {rank.tp: rank.dp for rank in ranks}
    width = width_of(known)
    return {tp: tp // width for tp in range(max(known, default=0) + 1)} if width else known
