"""Blobs of a registry: uploaded whole, or downloaded to a file that continues where it stopped."""

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
def downloaded(repository: Repository, blob: Blob, folder: Path) -> Iterator[Partial]:
    """Yield the downloaded file."""
    with arriving(folder, blob.digest.partition(":")[2], blob.bytes) as partial:
        kept = partial.take_up(blob.bytes)
        if kept:
            repository.how.note(f"{human_bytes(kept)} of it are here from an earlier pull")
        try:
            _download(repository, blob, partial)
        except CheckFailed:
            partial.begin_anew()
            if not kept:
                raise
            _download(repository, blob, partial)  # the kept part was bad, not the new one
        partial.flush()
        yield partial


def _download(repository: Repository, blob: Blob, partial: Partial) -> None:
    repository.again(lambda: _go_on(repository, blob, partial), lambda: partial.bytes // PIECE)
    _check(repository, blob, partial.digest, partial.bytes)


def _go_on(repository: Repository, blob: Blob, partial: Partial) -> None:
    there, registry = partial.bytes, repository.name.registry
    if there == blob.bytes:
        return
    headers = {"Range": f"bytes={there}-"} if there else {}
    url = repository.url(f"blobs/{blob.digest}")
    with repository.ask("GET", url, 200, 206, 416, headers=headers, stream=True) as answer:
        goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {there}-")
        if there and not (goes_on and answer.status_code == 206):
            there = partial.begin_anew()
        if answer.status_code == 416 or (answer.status_code == 206 and not there):
            raise Broken(f"{registry} cannot go on where it stopped", again=0)
        for piece in _in_time(repository, pieces(answer)):
            if partial.bytes + len(piece) > blob.bytes:
                raise CheckFailed(f"{registry} sends more than the {blob.bytes:,} bytes of {blob.digest}")
            partial.take(piece)
            repository.how.progress("got", partial.bytes, blob.bytes)
    if partial.bytes < blob.bytes:
        raise Broken(f"{registry} stopped before the end", "try again", again=0)


def _in_time(repository: Repository, coming: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the rest. Too few bytes in a time limit end the attempt, even if pieces keep coming."""
    patience = repository.how.patience
    came, until = 0, time.monotonic() + patience
    while True:
        left = until - time.monotonic()
        with repository.session.told(repository.name.registry):
            if left <= 0:
                raise TooSlow
            with within(left):
                piece = next(coming, b"")
        if not piece:
            return
        yield piece
        came += len(piece)
        if came >= LEAST:
            came, until = 0, time.monotonic() + patience


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
