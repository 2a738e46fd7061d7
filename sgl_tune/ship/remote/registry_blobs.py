"""Blobs of a registry: uploaded whole, or downloaded to a file that continues where it stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import quote

from sgl_tune.errors import CheckFailed, WorkFailed
from sgl_tune.ship.remote.partial import Partial, arriving
from sgl_tune.ship.remote.registry_client import Repository, digest_of, own_words
from sgl_tune.ship.remote.registry_session import PIECE, Body, Broken, pieces
from sgl_tune.ship.remote.remotes import TooSlow, within
from sgl_tune.units import human_bytes

LEAST = 256 << 10  # bytes of a blob in each --timeout
_BINARY = {"Content-Type": "application/octet-stream"}


class Blob(NamedTuple):
    digest: str
    bytes: int


def small_blob(repository: Repository, blob: Blob) -> bytes:
    """Return a small blob as bytes."""
    answer = repository.again(lambda: repository.ask("GET", repository.url(f"blobs/{blob.digest}"), 200))
    _check(repository, blob, digest_of(answer.content), len(answer.content))
    return bytes(answer.content)


@contextmanager
def downloaded(repository: Repository, blob: Blob, folder: Path) -> Iterator[tuple[Partial, int]]:
    """Yield the downloaded file, and how many bytes were received now."""
    with arriving(folder, blob.digest.partition(":")[2], blob.bytes) as partial:
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
            self._all()  # the kept part was bad, not the new one
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
            goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {there}-")
            if there and not (goes_on and answer.status_code == 206):
                there = self._partial.begin_anew()
            if answer.status_code == 416 or (answer.status_code == 206 and not there):
                raise Broken(f"{self._registry} cannot go on where it stopped", again=0)
            self._take_all(pieces(answer))
        if self._partial.bytes < self._blob.bytes:
            raise Broken(f"{self._registry} stopped before the end", "try again", again=0)

    def _take_all(self, coming: Iterator[bytes]) -> None:
        """Receive the rest. Too few bytes in a time limit end the attempt, even if pieces keep coming."""
        patience = self._repository.how.patience
        came, until = 0, time.monotonic() + patience
        while piece := self._next(coming, until - time.monotonic()):
            self._take(piece)
            came += len(piece)
            if came >= LEAST:
                came, until = 0, time.monotonic() + patience

    def _next(self, coming: Iterator[bytes], left: float) -> bytes:
        with self._repository.session.told(self._registry):
            if left <= 0:
                raise TooSlow
            with within(left):
                return next(coming, b"")

    def _take(self, piece: bytes) -> None:
        self._received += len(piece)
        if self._partial.bytes + len(piece) > self._blob.bytes:
            raise CheckFailed(
                f"{self._registry} sends more than the {self._blob.bytes:,} bytes of {self._blob.digest}"
            )
        self._partial.take(piece)
        self._repository.how.progress("got", self._partial.bytes, self._blob.bytes)


def _check(repository: Repository, blob: Blob, digest: str, length: int) -> None:
    if length != blob.bytes or digest != blob.digest:
        raise CheckFailed(
            f"{repository.name.registry} gives {length:,} bytes of {digest} for the"
            f" {blob.bytes:,} of {blob.digest}"
        )


def upload(repository: Repository, blob: Blob, file: BinaryIO) -> int:
    """Upload a blob, unless the registry has it; return the bytes sent. A broken upload starts again."""
    return repository.again(lambda: _sent(repository, blob, file))


def _sent(repository: Repository, blob: Blob, file: BinaryIO) -> int:
    registry = repository.name.registry
    if repository.ask("HEAD", repository.url(f"blobs/{blob.digest}"), 200, 404).status_code == 200:
        return 0
    begun = repository.url("blobs/uploads/")
    answer = repository.ask("POST", begun, 202, headers={**_BINARY, "Content-Length": "0"})
    location = answer.headers.get("Location")
    if not location:
        raise Broken(f"{registry} does not say where an upload goes")
    at = str(repository.address(location, "wants uploads sent to", begun))
    at += f"{'&' if '?' in at else '?'}digest={quote(blob.digest, safe='')}"
    body = Body(file, blob.bytes, lambda there: repository.how.progress("sent", there, blob.bytes))
    headers = {**_BINARY, "Content-Length": str(blob.bytes)}
    answer = repository.ask("PUT", at, 201, 202, 204, 400, data=body, headers=headers)
    if answer.status_code == 400:  # the registry received other bytes than were sent
        raise WorkFailed(f"{registry} does not keep {blob.digest}{own_words(answer)}", "push again")
    told = answer.headers.get("Docker-Content-Digest", blob.digest)
    if told != blob.digest:
        raise CheckFailed(f"{registry} keeps {blob.digest} as {told[:100]}")
    return blob.bytes
