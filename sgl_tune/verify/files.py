"""Read the rank files of a cache on the disk, and judge their contents."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from sgl_tune.cache.folder import Slurped, Way, read_below, reader
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.reading import is_file
from sgl_tune.verify.access import Access
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
