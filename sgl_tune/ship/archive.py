"""Read a bundle from an unknown author, once, from its first byte to its last, without trusting it. The
manifest comes first and determines every following byte. The rest is compared with it; no member's header
is ever acted on, so no name, link or size in a header can lead anywhere."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sgl_tune.errors import UsageError
from sgl_tune.reading import open_regular
from sgl_tune.ship.manifest import (
    LARGEST_BUNDLE,
    LARGEST_MANIFEST,
    NAME,
    BadBundle,
    BundleManifest,
    PackedFile,
    parse_bundle_manifest,
)
from sgl_tune.ship.members import BLOCK, END, Member, decompressed, header, manifest_member, members, padding
from sgl_tune.ship.places import store_of
from sgl_tune.stores.find import TACTICS
from sgl_tune.units import human_bytes, shown

if TYPE_CHECKING:
    from hashlib import _Hash as Hash


_AGAIN = "get it again from where it was packed"
_PIECE = 1 << 20
_OCTAL = re.compile(rb"[0-7]{1,11}[\0 ]*")
LARGEST_TACTICS_IN_ALL = 64 << 20  # some 4,000 ranks, all in memory at once
_STEEPEST = 300  # compilers' output compresses to no less than ten times that
_SMALL = 256 << 20
_BLOCK = 4096  # disk space of the smallest file or an empty folder


class Archive:
    """One pass over an opened bundle. `manifest` is read at once, `each` yields the rest."""

    def __init__(self, stream: "_Stream", size: int, at_end: Callable[[], None]) -> None:
        self._stream, self._at_end = stream, at_end
        self.compressed = size
        block = stream.take(BLOCK, short=True)
        field = block[124:136]
        told = int(field.rstrip(b"\0 "), 8) if _OCTAL.fullmatch(field) else 0
        if told > LARGEST_MANIFEST:
            raise BadBundle(f"its manifest has {human_bytes(told)}, more than any bundle's")
        if block != header(manifest_member(told)):
            raise BadBundle(_objection(block, manifest_member(told)))
        raw = stream.take(told)
        self._padding(told, NAME)
        self.manifest: BundleManifest = parse_bundle_manifest(raw)
        check_bounds(self.manifest, size)

    def each(self) -> Iterator[tuple[Member, Iterator[bytes]]]:
        """Yield every member after the manifest. A content is checked once it has been read to its end."""
        for member in members(self.manifest):
            wanted = header(member)
            if (there := self._stream.take(len(wanted), short=True)) != wanted:
                raise BadBundle(_objection(there, member))
            if member.kind == "file":
                yield member, self._content(member)
                self._padding(member.size, member.path)
            else:
                yield member, iter(())
        end = self._stream.take(len(END), short=True)
        if end != END:
            raise BadBundle(_objection(end, None))
        if self._stream.take(1, short=True):
            raise BadBundle("bytes follow the end of its tar")
        self._at_end()

    def _content(self, member: Member) -> Iterator[bytes]:
        left, seen = member.size, sha256()
        while True:
            piece = self._stream.take(min(left, _PIECE))
            seen.update(piece)
            left -= len(piece)
            if not left and seen.hexdigest() != member.sha256:
                raise BadBundle(f"{member.path}: its content has another digest than the manifest says")
            yield piece
            if not left:
                return

    def _padding(self, size: int, path: str) -> None:
        wanted = padding(size)
        if self._stream.take(len(wanted)) != wanted:
            raise BadBundle(f"{path}: bytes are hidden behind its end")


class _Stream:
    """A stream that returns exactly as many bytes as requested, from pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._buffer = pieces, bytearray()

    def take(self, size: int, short: bool = False) -> bytes:
        """Return the next bytes. `short`: return fewer if the stream ends."""
        while len(self._buffer) < size and (piece := next(self._pieces, b"")):
            self._buffer += piece
        if len(self._buffer) < size and not short:
            raise BadBundle("it is cut off: its tar ends in the middle of a member", "get it again")
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found


def _objection(there: bytes, wanted: Member | None) -> str:
    """Describe what stands in place of a member or of the end. Nothing acts on its content."""
    block, place = there[:BLOCK], wanted.path if wanted else "the end of its tar"
    if not block.strip(b"\0") and wanted and len(block) == BLOCK:
        return f"its tar ends before {place}, which belongs there"
    if len(block) < BLOCK or not there.strip(b"\0"):
        return f"it is cut off before {place}"
    name = block[:100].split(b"\0")[0].decode("utf-8", "backslashreplace")
    if wanted and name.removesuffix("/") == place[:100]:
        return f"{place} has a header that `pack` does not write"
    return f"{shown(name, 200)} stands where {place} belongs"


@dataclass(frozen=True)
class Opened:
    """An opened bundle. Its digest is known once `archive` is read to its end, and then equals `checked`."""

    archive: Archive
    checked: str | None
    _read: "Hash"
    _tar: "Hash"

    @property
    def digest(self) -> str:
        return f"sha256:{self._read.hexdigest()}"

    @property
    def diff_id(self) -> str:
        """Return the digest of the bundle's tar, if requested: an image's "diff id" of its layer."""
        return f"sha256:{self._tar.hexdigest()}"


@contextmanager
def opened(
    path: Path,
    check: Callable[[str], object] | None = None,
    with_diff_id: bool = False,
    called: str | None = None,
    hashed: Callable[[int], object] = lambda there: None,
) -> Iterator[Opened]:
    """Open a bundle. Nothing is decompressed before `check` has approved the digest. `called`: the name
    that the user knows, if not the path. `hashed`: called with the number of bytes hashed so far."""
    read, tar = sha256(), sha256()
    with named(called or path), _file(path) as file:
        checked = None
        if check:
            checked = _digest(file, hashed)
            check(checked)
            file.seek(0)

        def at_end() -> None:
            if checked and f"sha256:{read.hexdigest()}" != checked:
                raise BadBundle("somebody wrote to it while it was read")

        pieces = decompressed(file, read.update)
        made = tapped(pieces, tar.update) if with_diff_id else pieces
        archive = Archive(_Stream(made), os.fstat(file.fileno()).st_size, at_end)
        yield Opened(archive, checked, read, tar)


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Add the file's name to errors about a bundle."""
    try:
        yield
    except BadBundle as error:
        raise type(error)(f"{path}: {error.message}", error.remedy or _AGAIN) from None


def _file(path: Path) -> BinaryIO:
    try:
        return open_regular(path, LARGEST_BUNDLE)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "name a file of `sgl-tune pack`"
        ) from None


def _digest(file: BinaryIO, hashed: Callable[[int], object]) -> str:
    found = sha256()
    while piece := file.read(_PIECE):
        found.update(piece)
        hashed(file.tell())
        if file.tell() > LARGEST_BUNDLE:
            raise BadBundle("it grows while it is read")
    return f"sha256:{found.hexdigest()}"


def tapped(pieces: Iterator[bytes], tap: Callable[[bytes], object]) -> Iterator[bytes]:
    for piece in pieces:
        tap(piece)
        yield piece


def check_bounds(manifest: BundleManifest, compressed: int) -> None:
    """Raise BadBundle if the manifest declares more than a file of this compressed size can contain."""
    tactics = sum(file.size for path, file in manifest.files.items() if store_of(path) == TACTICS)
    if tactics > LARGEST_TACTICS_IN_ALL:
        most = human_bytes(LARGEST_TACTICS_IN_ALL)
        raise BadBundle(f"its cache files have {human_bytes(tactics)}; at most {most} are read")
    written = on_disk(manifest.files.values()) + _BLOCK * len(manifest.all_folders())
    if written > max(_SMALL, _STEEPEST * compressed):
        raise BadBundle(
            f"it would take {human_bytes(written)} on a disk, and has {human_bytes(compressed)}:"
            " no bundle shrinks that much"
        )


def on_disk(files: Iterable[PackedFile]) -> int:
    """Return the disk space of files, in whole blocks."""
    return sum(-(-file.size // _BLOCK) for file in files) * _BLOCK
