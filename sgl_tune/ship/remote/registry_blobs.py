"""Blobs of a registry: fetched to a file or sent, in pieces, each taken up where it stopped."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

import requests

from sgl_tune.errors import CheckFailed, WorkFailed
from sgl_tune.ship.remote.deadline import TooSlow, within
from sgl_tune.ship.remote.partial import Partial, arriving
from sgl_tune.ship.remote.registry_client import Absent, Repository, digest_of, own_words
from sgl_tune.ship.remote.registry_session import PIECE, Broken, pieces
from sgl_tune.units import human_bytes

LEAST = 256 << 10  # of a blob in each --timeout
CHUNK = 8 << 20
_LARGEST_CHUNK = 64 << 20
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,15})")
_BINARY = {"Content-Type": "application/octet-stream"}


class Blob(NamedTuple):
    digest: str
    bytes: int


def small_blob(repository: Repository, blob: Blob) -> bytes:
    """Whole, where it is no longer than an answer may be."""
    answer = repository.again(lambda: repository.ask("GET", repository.url(f"blobs/{blob.digest}"), 200))
    _check(repository, blob, digest_of(answer.content), len(answer.content))
    return bytes(answer.content)


@contextmanager
def downloaded(repository: Repository, blob: Blob, folder: Path) -> Iterator[tuple[Partial, int]]:
    """The file and how many bytes came now."""
    with arriving(folder, blob.digest.partition(":")[2], blob.bytes, repository.how.note) as partial:
        yield partial, _Download(repository, blob, partial).run()


class _Download:
    def __init__(self, repository: Repository, blob: Blob, partial: Partial) -> None:
        self._repository, self._blob, self._partial = repository, blob, partial
        self._registry = repository.name.registry
        self._received = 0

    def run(self) -> int:
        kept = self._partial.take_up(self._blob.bytes)
        if kept:
            self._repository.how.note(f"{human_bytes(kept)} of it are here from an earlier pull")
        try:
            self._all()
        except CheckFailed:
            self._partial.begin_anew()
            if not kept:
                raise
            self._all()  # what was kept was spoilt, and not what came now
        self._partial.flush()
        return self._received

    def _all(self) -> None:
        self._repository.again(self._more, lambda: self._partial.bytes // PIECE)
        _check(self._repository, self._blob, self._partial.digest, self._partial.bytes)

    def _more(self) -> None:
        there = self._partial.bytes
        if there == self._blob.bytes:
            return
        headers = {"Range": f"bytes={there}-"} if there else {}
        url = self._repository.url(f"blobs/{self._blob.digest}")
        with self._repository.ask("GET", url, 200, 206, 416, headers=headers, stream=True) as answer:
            if there and not _goes_on(answer.status_code, answer.headers, there):
                there = self._partial.begin_anew()
            if answer.status_code == 416 or (answer.status_code == 206 and not there):
                raise Broken(f"{self._registry} cannot go on where it stopped", again=0)
            self._take_all(pieces(answer))
        if self._partial.bytes < self._blob.bytes:
            raise Broken(f"{self._registry} stopped before the end", "try again", again=0)

    def _take_all(self, coming: Iterator[bytes]) -> None:
        """So much in so many seconds, in however small pieces, or it is no use to wait for the rest."""
        clock = _Clock(self._repository.how.patience)
        while piece := self._next(coming, clock):
            self._take(piece)
            clock.count(len(piece))

    def _next(self, coming: Iterator[bytes], clock: _Clock) -> bytes:
        with self._repository.session.told(self._registry), within(clock.left()):
            return next(coming, b"")

    def _take(self, piece: bytes) -> None:
        self._received += len(piece)
        if self._partial.bytes + len(piece) > self._blob.bytes:
            raise CheckFailed(
                f"{self._registry} sends more than the {self._blob.bytes:,} bytes of {self._blob.digest}"
            )
        self._partial.take(piece)
        self._repository.how.progress("got", self._partial.bytes, self._blob.bytes)


class _Clock:
    """`LEAST` bytes in each `patience`."""

    def __init__(self, patience: float) -> None:
        self._patience, self._came = patience, 0
        self._until = time.monotonic() + patience

    def left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TooSlow
        return left

    def count(self, size: int) -> None:
        self._came += size
        if self._came >= LEAST:
            self._came, self._until = 0, time.monotonic() + self._patience


def _goes_on(status: int, headers: Mapping[str, str], start: int) -> bool:
    return status == 206 and headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _check(repository: Repository, blob: Blob, digest: str, length: int) -> None:
    if length != blob.bytes or digest != blob.digest:
        raise CheckFailed(
            f"{repository.name.registry} gives {length:,} bytes of {digest} for the"
            f" {blob.bytes:,} of {blob.digest}"
        )


def upload(repository: Repository, blob: Blob, file: BinaryIO) -> int:
    """How many bytes were sent."""
    sending = _Upload(repository, blob, file)
    repository.again(sending.go_on, lambda: sending.there)
    return sending.sent


class NotKept(WorkFailed):
    """The registry says that what it was sent has another digest."""


class _Upload:
    """`_at` is where the registry wants what comes next."""

    def __init__(self, repository: Repository, blob: Blob, file: BinaryIO) -> None:
        self._repository, self._blob, self._file = repository, blob, file
        self._at: str | None = None
        self._chunk = CHUNK
        self.there = self.sent = 0

    def go_on(self) -> None:
        url = self._repository.url(f"blobs/{self._blob.digest}")
        if self._repository.ask("HEAD", url, 200, 404).status_code == 200:
            return
        resumed = self._found()
        if not resumed:
            self._begin()
        try:
            if self._blob.bytes > self._chunk:
                while self.there < self._blob.bytes:
                    self._send(self._read())
            self._finish(self._read())
        except (Absent, NotKept):
            if not resumed:
                raise
            self._at = None
            raise Broken(f"{self._repository.name.registry} lost what was sent before", again=0) from None

    def _found(self) -> bool:
        """Of what broke off, how far it came."""
        if self._at is None:
            return False
        answer = self._repository.ask("GET", self._at, 204, 200, 400, 404, 405, 416)
        if answer.status_code != 204:
            return False
        self._stands_at(answer, 0)
        return True

    def _begin(self) -> None:
        self._at = None
        url = self._repository.url("blobs/uploads/")
        headers = {**_BINARY, "Content-Length": "0"}
        self._moved(self._repository.ask("POST", url, 202, headers=headers), url)
        self.there = 0

    def _read(self) -> bytes:
        self._file.seek(self.there)
        return self._file.read(self._chunk)

    def _send(self, piece: bytes) -> None:
        end = self.there + len(piece) - 1
        headers = {**_BINARY, "Content-Range": f"{self.there}-{end}", "Content-Length": str(len(piece))}
        at = str(self._at)
        answer = self._repository.ask("PATCH", at, 202, 416, data=piece, headers=headers)
        if answer.status_code == 416:  # it has another part than we think
            raise Broken(f"{self._repository.name.registry} stands elsewhere in the upload", again=0)
        self.sent += len(piece)
        self._stands_at(answer, end + 1)
        if self.there <= end:
            raise Broken(f"{self._repository.name.registry} loses what it is sent", again=0)

    def _finish(self, piece: bytes) -> None:
        at = str(self._at)
        at += f"{'&' if '?' in at else '?'}digest={quote(self._blob.digest, safe='')}"
        headers = {**_BINARY, "Content-Length": str(len(piece))}
        answer = self._repository.ask("PUT", at, 201, 202, 204, 400, data=piece, headers=headers)
        if answer.status_code == 400:  # what it has is not what was sent
            registry = self._repository.name.registry
            raise NotKept(f"{registry} does not keep {self._blob.digest}{own_words(answer)}", "push again")
        self.sent += len(piece)
        told = answer.headers.get("Docker-Content-Digest", self._blob.digest)
        if told != self._blob.digest:
            raise CheckFailed(f"{self._repository.name.registry} keeps {self._blob.digest} as {told[:100]}")

    def _stands_at(self, answer: requests.Response, supposed: int) -> None:
        """`Range: 0-8388607`; a registry that has nothing yet says 0-0."""
        told = _RANGE.fullmatch(answer.headers.get("Range", ""))
        there = int(told[1]) + 1 if told else supposed
        self.there = 0 if there == 1 else there
        if self.there > self._blob.bytes:
            raise Broken(f"{self._repository.name.registry} has more of the upload than there is")
        self._moved(answer, str(self._at))
        self._repository.how.progress("sent", self.there, self._blob.bytes)

    def _moved(self, answer: requests.Response, url: str) -> None:
        location = answer.headers.get("Location")
        if not location and not self._at:
            raise Broken(f"{self._repository.name.registry} does not say where an upload goes")
        if location:
            self._at = str(self._repository.address(location, "wants uploads sent to", url))
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        if least.isascii() and least.isdigit() and len(least) < 12:
            self._chunk = min(max(self._chunk, int(least)), _LARGEST_CHUNK)
