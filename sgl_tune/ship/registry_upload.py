"""A blob to a registry, unless it is there: in pieces, taken up where the registry says it stopped."""

from __future__ import annotations

import re
from typing import BinaryIO
from urllib.parse import quote

import requests

from sgl_tune.errors import CheckFailed, WorkFailed
from sgl_tune.ship.registry_client import Absent, Repository, own_words
from sgl_tune.ship.registry_download import Blob
from sgl_tune.ship.registry_session import Broken

CHUNK = 8 << 20
_LARGEST_CHUNK = 64 << 20
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,15})")
_BINARY = {"Content-Type": "application/octet-stream"}


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
