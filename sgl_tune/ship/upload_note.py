"""Where an upload that broke off goes on: a small file beside the bundle, gone when all of it is there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from sgl_tune.reading import open_regular

_LARGEST = 16 << 10


class UploadNote:
    """For its owner alone: who has the address may add to the upload. Where it cannot be written, the next
    push begins anew."""

    def __init__(self, bundle: Path) -> None:
        self._path = bundle.with_name(f".{bundle.name[:200]}.upload")

    def read(self, place: str, digest: str) -> str | None:
        """Of the same bytes to the same place."""
        try:
            with open_regular(self._path, _LARGEST) as file:
                is_ours = os.fstat(file.fileno()).st_uid == os.geteuid()
                told = json.loads(file.read(_LARGEST))
            at = told["at"] if (told["place"], told["digest"]) == (place, digest) else None
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        return at if is_ours and isinstance(at, str) else None

    def write(self, at: str, place: str, digest: str) -> None:
        content = json.dumps({"place": place, "digest": digest, "at": at}).encode()
        part = self._path.with_name(f"{self._path.name}.{token_hex(4)}")
        with suppress(OSError):
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, content)
            finally:
                os.close(file)
            part.replace(self._path)

    def forget(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
