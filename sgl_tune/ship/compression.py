"""gzip and zstd with fixed settings: a fixed level, and exactly one stream per file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import BadBundle
from sgl_tune.ship.recognised import GZIP_MAGIC, ZSTD_MAGIC

Codec = Literal["gzip", "zstd"]
Read = Callable[[int], bytes]
GZIP_LEVEL = 6
ZSTD_LEVEL = 9
_GZIP = 16 + zlib.MAX_WBITS
_CHUNK = 1 << 20
_INPUT = 1 << 18
_LARGEST_WINDOW = 32 << 20
_ZSTD_INPUT = 1 << 9
SUFFIXES: dict[str, Codec] = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}
MEDIA_TYPES: dict[Codec, str] = {
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}


def codec_of_name(path: Path) -> Codec:
    found = next((codec for suffix, codec in SUFFIXES.items() if path.name.endswith(suffix)), None)
    if found is None:
        raise UsageError(f"{path}: the name does not say which compression", "name it .tar.gz or .tar.zst")
    if found == "zstd":
        _zstandard()
    return found


def media_type(bundle: Path) -> str:
    """Return the media type by the file's first bytes, whatever its name."""
    with bundle.open("rb") as file:
        return MEDIA_TYPES["zstd" if file.read(4) == ZSTD_MAGIC else "gzip"]


def compressed(pieces: Iterator[bytes], codec: Codec) -> Iterator[bytes]:
    """Compress so that equal contents give equal bytes, however they are cut into pieces."""
    if codec == "gzip":
        stream: Any = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    else:
        settings = {"write_checksum": True, "write_content_size": False}
        stream = _zstandard().ZstdCompressor(ZSTD_LEVEL, **settings).compressobj()
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def decompressed(file: BinaryIO, tap: Callable[[bytes], object]) -> Iterator[bytes]:
    """Yield decompressed pieces of limited size. `tap` gets every byte that is read. BadBundle is raised
    unless the file is exactly one compressed stream."""

    def read(most: int) -> bytes:
        data = file.read(most)
        tap(data)
        return data

    head = read(4)
    if head.startswith(GZIP_MAGIC):
        magic, rest = GZIP_MAGIC, (yield from _gunzipped(head, read))
    elif head == ZSTD_MAGIC:
        magic, rest = ZSTD_MAGIC, (yield from _unzstd(head, read))
    else:
        raise BadBundle("is no bundle: neither gzip nor zstd", "`sgl-tune pack` makes one")
    rest = rest or file.read(_INPUT)
    if rest.startswith(magic):
        raise BadBundle("a second compressed stream follows the first")
    if rest:
        raise BadBundle("bytes follow the end of its compressed stream")


def _gunzipped(head: bytes, read: Read) -> Generator[bytes, None, bytes]:
    """Yield decompressed pieces, and return the bytes that were read beyond the stream's end."""
    if head[2:3] != b"\x08" or head[3:4] != b"\0":
        raise BadBundle("its gzip header has a name, a comment or a field that `pack` does not write")
    inflate = zlib.decompressobj(_GZIP)
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
            data = read(_INPUT) or _exactly(read, 1)
    return inflate.unused_data


def _unzstd(head: bytes, read: Read) -> Generator[bytes, None, bytes]:
    """Yield decompressed pieces, and return the bytes that were read beyond the stream's end. Little is
    read at a time, because four bytes may become 128 KB."""
    library = _zstandard()
    frame = library.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).decompressobj()
    data = head
    while not frame.eof:
        try:
            piece = frame.decompress(data)
        except library.ZstdError as error:
            raise BadBundle(f"its zstd stream is damaged ({error})") from None
        if piece:
            yield piece
        if not frame.eof:
            data = read(_ZSTD_INPUT) or _exactly(read, 1)
    return bytes(frame.unused_data)


def _exactly(read: Read, size: int) -> bytes:
    data = read(size)
    if len(data) < size:
        raise BadBundle("it is cut off: its compressed stream does not end", "get it again")
    return data


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise UsageError(
            "zstd needs the package zstandard", "pip install 'sgl-tune[zstd]', or .tar.gz"
        ) from None
    return zstandard
