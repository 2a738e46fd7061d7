"""A blob from a registry to a file: taken up where it broke off, and held to its digest and its size."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sgl_tune.errors import CheckFailed, WorkFailed
from sgl_tune.ship.deadline import within
from sgl_tune.ship.registry_client import Repository
from sgl_tune.ship.registry_session import Broken, pieces
from sgl_tune.units import human_bytes

_READ = 1 << 20
_KEPT_SECONDS = 7 * 86400


class Blob(NamedTuple):
    digest: str
    bytes: int


def small_blob(repository: Repository, blob: Blob) -> bytes:
    """Whole, where it is no longer than an answer may be."""
    answer = repository.again(lambda: repository.ask("GET", repository.url(f"blobs/{blob.digest}"), 200))
    _check(repository, blob, hashlib.sha256(answer.content).hexdigest(), len(answer.content))
    return bytes(answer.content)


@contextmanager
def downloaded(repository: Repository, blob: Blob, folder: Path) -> Iterator[tuple[Path, int]]:
    """The file and how many bytes came now. It is gone afterwards, unless there was an error: then the next
    attempt finds it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _forget_old(folder)
    path = folder / f"{blob.digest.partition(':')[2]}.part"
    with _alone(path) as file:
        _check_room(folder, blob.bytes - os.fstat(file.fileno()).st_size)
        yield path, _Download(repository, blob, file).run()
        path.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """What was kept: a regular file of this user's, and no other pull at work on it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
            raise WorkFailed(f"{path} is not what a pull left there", "remove it")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WorkFailed(f"{path}: another pull is writing it", "wait until it has finished") from None
        except OSError:  # a file system without locks
            pass
        yield file


def _forget_old(folder: Path) -> None:
    for path in folder.glob("*.part"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > _KEPT_SECONDS:
                path.unlink()


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise WorkFailed(
            f"{folder}: the bundle needs {human_bytes(needed)} there, and {human_bytes(free)} are free",
            "make room, or name another --cache-dir",
        )


class _Download:
    def __init__(self, repository: Repository, blob: Blob, file: BinaryIO) -> None:
        self._repository, self._blob, self._file = repository, blob, file
        self._registry = repository.name.registry
        self._hash = hashlib.sha256()
        self._there = self._received = 0

    def run(self) -> int:
        kept = self._take_up()
        try:
            self._all()
        except CheckFailed:
            self._anew()
            if not kept:
                raise
            self._all()  # what was kept was spoilt, and not what came now
        self._file.flush()
        return self._received

    def _all(self) -> None:
        self._repository.again(self._more, lambda: self._received)
        _check(self._repository, self._blob, self._hash.hexdigest(), self._there)

    def _take_up(self) -> int:
        self._file.truncate(min(os.fstat(self._file.fileno()).st_size, self._blob.bytes))
        while piece := self._file.read(_READ):
            self._hash.update(piece)
            self._there += len(piece)
        if self._there:
            self._repository.how.note(f"{human_bytes(self._there)} of it are here from an earlier pull")
        return self._there

    def _more(self) -> None:
        if self._there == self._blob.bytes:
            return
        headers = {"Range": f"bytes={self._there}-"} if self._there else {}
        url = self._repository.url(f"blobs/{self._blob.digest}")
        with self._repository.ask("GET", url, 200, 206, 416, headers=headers, stream=True) as answer:
            if self._there and not _goes_on(answer.status_code, answer.headers, self._there):
                self._anew()
            if answer.status_code == 416 or (answer.status_code == 206 and not self._there):
                raise Broken(f"{self._registry} cannot go on where it stopped", again=0)
            coming = pieces(answer)
            while piece := self._next(coming):
                self._take(piece)
        if self._there < self._blob.bytes:
            raise Broken(f"{self._registry} stopped before the end", "try again", again=0)

    def _next(self, coming: Iterator[bytes]) -> bytes:
        """A piece in so many seconds, or it is no use to wait for the rest."""
        with self._repository.session.told(self._registry), within(self._repository.how.patience):
            return next(coming, b"")

    def _take(self, piece: bytes) -> None:
        self._there += len(piece)
        self._received += len(piece)
        if self._there > self._blob.bytes:
            raise CheckFailed(
                f"{self._registry} sends more than the {self._blob.bytes:,} bytes of {self._blob.digest}"
            )
        self._file.write(piece)
        self._hash.update(piece)
        self._repository.how.progress(self._there, self._blob.bytes)

    def _anew(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self._there = 0


def _goes_on(status: int, headers: Mapping[str, str], start: int) -> bool:
    return status == 206 and headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _check(repository: Repository, blob: Blob, digest: str, length: int) -> None:
    if length != blob.bytes or f"sha256:{digest}" != blob.digest:
        raise CheckFailed(
            f"{repository.name.registry} gives {length:,} bytes of sha256:{digest} for the"
            f" {blob.bytes:,} of {blob.digest}"
        )
