"""Records that were made before, by a digest of everything that they depend on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from runtime.record.record import NotARecord, Record
from sgl_tune.writing import write_text

MOST_BYTES = 2 << 30
_SOURCES = ("ghost", "sglang", "record")
_RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
_LARGEST = 64 << 20


class Kept:
    """A folder of records, the newest kept where there are too many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, digest: str) -> Record | None:
        file = self._folder / f"{digest}.json"
        try:
            if file.stat().st_size > _LARGEST:
                return None
            record = Record.from_json(file.read_bytes())
        except (OSError, NotARecord):
            return None
        os.utime(file)
        return record

    def keep(self, digest: str, record: Record) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(self._folder / f"{digest}.json", record.to_json())
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
        total = 0
        for file in files:
            total += file.stat().st_size
            if total > MOST_BYTES:
                file.unlink(missing_ok=True)


def digest_of(parts: Mapping[str, object], folders: tuple[Path, ...]) -> str:
    """One digest of these values, of every data file of a model's folders, and of the ghost's own source."""
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            digest.update(f"{folder}/{file.name}\0".encode() + _bytes(file))
    for file in own_source():
        digest.update(f"{file.relative_to(_RUNTIME)}\0".encode() + _bytes(file))
    return digest.hexdigest()


def own_source() -> Iterator[Path]:
    """The files that decide what a ghost answers."""
    for room in _SOURCES:
        for file in sorted((_RUNTIME / room).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def _bytes(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()
