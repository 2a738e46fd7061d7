"""gzip and zstd with nothing left to chance: a fixed header, a fixed level, and no member after the first."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import BadBundle

Codec = Literal["gzip", "zstd"]
GZIP_LEVEL = 6
ZSTD_LEVEL = 9
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no system
_CHUNK = 1 << 20
_INPUT = 1 << 18
_ZSTD_INPUT = 1 << 10  # a kilobyte may hold 32 MB, and no call bounds what comes out
_LARGEST_WINDOW = 32 << 20
SUFFIXES: dict[str, Codec] = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}
MEDIA_TYPES: dict[Codec, str] = {
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}


class Compressor(Protocol):
    def compress(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._before, self._crc, self._size = _GZIP_HEADER, 0, 0

    def compress(self, data: bytes) -> bytes:
        before, self._before = self._before, b""
        self._crc, self._size = zlib.crc32(data, self._crc), self._size + len(data)
        return before + self._deflate.compress(data)

    def finish(self) -> bytes:
        return self._deflate.flush() + struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)


class _Zstd:
    def __init__(self) -> None:
        made = _zstandard().ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True, write_content_size=False)
        self._frame = made.compressobj()

    def compress(self, data: bytes) -> bytes:
        return bytes(self._frame.compress(data))

    def finish(self) -> bytes:
        return bytes(self._frame.flush())


def codec_of_name(path: Path) -> Codec:
    found = next((codec for suffix, codec in SUFFIXES.items() if path.name.endswith(suffix)), None)
    if found is None:
        raise UsageError(f"{path}: which compressor is not said", "name it .tar.gz or .tar.zst")
    if found == "zstd":
        _zstandard()
    return found


def media_type(bundle: Path) -> str:
    """By what it begins with, whatever its name."""
    with bundle.open("rb") as file:
        return MEDIA_TYPES["zstd" if file.read(4) == ZSTD_MAGIC else "gzip"]


def compressor(codec: Codec) -> Compressor:
    return _Gzip() if codec == "gzip" else _Zstd()


def decompressed(file: BinaryIO, tap: Callable[[bytes], object]) -> Iterator[bytes]:
    """Pieces of bounded size; `tap` sees every byte that was read. BadBundle unless the file ends with its
    one compressed stream."""
    head = file.read(4)
    tap(head)
    if head.startswith(GZIP_MAGIC):
        yield from _gunzipped(head, file, tap)
    elif head == ZSTD_MAGIC:
        yield from _unzstd(head, file, tap)
    else:
        raise BadBundle("is no bundle: neither gzip nor zstd", "`sgl-tune pack` makes one")


def _gunzipped(head: bytes, file: BinaryIO, tap: Callable[[bytes], object]) -> Iterator[bytes]:
    if head[2:3] != b"\x08" or head[3:4] != b"\0":
        raise BadBundle("its gzip header has a name, a comment or a field that `pack` does not write")
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
    data = head
    while not inflate.eof:
        try:
            piece = inflate.decompress(data, _CHUNK)
        except zlib.error as error:
            raise BadBundle(f"its gzip stream is damaged ({error})") from None
        if piece:
            yield piece
        data = inflate.unconsumed_tail
        if not data and not inflate.eof:
            data = _next(file, _INPUT, tap)
    _at_its_end(inflate.unused_data, file, tap, GZIP_MAGIC)


def _unzstd(head: bytes, file: BinaryIO, tap: Callable[[bytes], object]) -> Iterator[bytes]:
    library = _zstandard()
    frame = library.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
    data = head
    while not frame.eof:
        try:
            piece = frame.decompress(data)
        except library.ZstdError as error:
            raise BadBundle(f"its zstd stream is damaged ({error})") from None
        for at in range(0, len(piece), _CHUNK):
            yield piece[at : at + _CHUNK]
        if not frame.eof:
            data = _next(file, _ZSTD_INPUT, tap)
    _at_its_end(frame.unused_data, file, tap, ZSTD_MAGIC)


def _next(file: BinaryIO, most: int, tap: Callable[[bytes], object]) -> bytes:
    data = file.read(most)
    if not data:
        raise BadBundle("it is cut off: its compressed stream does not end", "get it again")
    tap(data)
    return data


def _at_its_end(rest: bytes, file: BinaryIO, tap: Callable[[bytes], object], magic: bytes) -> None:
    if not rest:
        rest = file.read(_INPUT)
    if rest.startswith(magic):
        raise BadBundle("a second compressed stream follows the first")
    if rest:
        raise BadBundle("bytes follow the end of its compressed stream")


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise UsageError(
            "zstd needs the package zstandard", "pip install 'sgl-tune[zstd]', or .tar.gz"
        ) from None
    return zstandard
