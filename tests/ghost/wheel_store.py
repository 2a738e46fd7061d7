"""Wheels, unpacked once and linked into every environment that has them.

A wheel's folder holds what any environment has asked of it so far. Its RECORD lists everything, with sha256.
"""

import base64
import csv
import hashlib
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgl_tune.servers.pip import Pip
from sgl_tune.servers.plan import Wheel

Wanted = Callable[[str], bool]
_DATA = re.compile(r"[^/]+\.data/(purelib|platlib|scripts|data|headers)/(.+)")
_AT_ONCE = 400_000_000  # bytes of wheels that lie on the disk before they are unpacked


@dataclass(frozen=True)
class Store:
    folder: Path
    pip: Pip

    def fill(self, wheels: Sequence[Wheel], wanted: Wanted) -> int:
        """Unpack the wanted files that are missing, and return the bytes that were downloaded."""
        missing = [wheel for wheel in wheels if not self._has(wheel, wanted)]
        sizes = self.pip.work("measure", {"urls": [wheel.url for wheel in missing]})
        sized = [(wheel, told["size"]) for wheel, told in zip(missing, sizes, strict=True)] if missing else []
        chunk: list[Wheel] = []
        held = 0
        for wheel, size in sized:
            chunk.append(wheel)
            held += size
            if held > _AT_ONCE:
                self._unpack(chunk, wanted)
                chunk, held = [], 0
        self._unpack(chunk, wanted)
        return sum(size for _, size in sized)

    def link(self, wheel: Wheel, packages: Path, wanted: Wanted) -> None:
        """Make hard links in an environment's folder of packages; programs are left out."""
        source = self.folder / wheel.sha256
        for name in filter(wanted, _recorded(source)):
            place = place_of(name)
            if place is None:
                continue
            target = packages / place
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(source / name, target)

    def _has(self, wheel: Wheel, wanted: Wanted) -> bool:
        source = self.folder / wheel.sha256
        try:
            return all((source / name).exists() for name in _recorded(source) if wanted(name))
        except FileNotFoundError:
            return False

    def _unpack(self, wheels: Sequence[Wheel], wanted: Wanted) -> None:
        files = self.folder / "files"
        files.mkdir(parents=True, exist_ok=True)
        asked = [{"name": one.name, "url": one.url, "sha256": one.sha256} for one in wheels]
        told = self.pip.work("fetch", {"folder": str(files), "wheels": asked}) if wheels else iter(())
        paths = [Path(line["path"]) for line in told if "path" in line]
        for wheel, path in zip(wheels, paths, strict=True):
            _unpack_one(path, self.folder / wheel.sha256, wanted)
            if path.parent == files:
                path.unlink()


def place_of(name: str) -> str | None:
    """Return the place of a wheel's file below the folder of packages, or None if it goes elsewhere."""
    match = _DATA.fullmatch(name)
    if match is None:
        return name
    return match[2] if match[1] in ("purelib", "platlib") else None


def _recorded(source: Path) -> dict[str, str]:
    """Return every unpacked file of a wheel, with its digest."""
    found = next(source.glob("*.dist-info/RECORD"), None)
    if found is None:
        raise FileNotFoundError(source)
    rows = csv.reader(io.StringIO(found.read_text()))
    return {row[0]: row[1] for row in rows if row and not row[0].endswith(("/RECORD.jws", "/RECORD.p7s"))}


def _unpack_one(path: Path, target: Path, wanted: Wanted) -> None:
    with zipfile.ZipFile(path) as archive:
        record = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name))
        rows = csv.reader(io.StringIO(archive.read(record).decode()))
        digests = {row[0]: row[1] for row in rows if row}
        for name in filter(wanted, digests):
            if name != record and not (target / name).exists():
                _unpack_file(archive, name, target / name, digests[name])
        _unpack_file(archive, record, target / record, "")  # last: it says that the rest is there


def _unpack_file(archive: zipfile.ZipFile, name: str, target: Path, promised: str) -> None:
    assert ".." not in Path(name).parts and not name.startswith("/"), name
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    digest = hashlib.sha256()
    with archive.open(name) as source, part.open("wb") as file:
        for chunk in _chunks(source):
            digest.update(chunk)
            file.write(chunk)
    told = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    assert promised in ("", f"sha256={told}"), f"{name}: not what its wheel's RECORD says"
    if archive.getinfo(name).external_attr >> 16 & 0o100:
        part.chmod(0o755)
    part.replace(target)


def _chunks(file: io.BufferedIOBase | zipfile.ZipExtFile) -> Iterator[bytes]:
    while chunk := file.read(1 << 20):
        yield chunk
