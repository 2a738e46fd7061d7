"""gzip and zstd with nothing left to chance: a fixed header, a fixed level, and no member after the first."""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import BadBundle
from sgl_tune.ship.recognised import GZIP_MAGIC, ZSTD_MAGIC
from sgl_tune.ship.zstd_blocks import pieces_of

Codec = Literal["gzip", "zstd"]
Job = Callable[[], bytes]
GZIP_LEVEL = 6
ZSTD_LEVEL = 9
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no system
_CHUNK = 1 << 20
_JOB = 4 << 20  # what is compressed at once: the bytes depend on it
_WINDOW = 1 << 15
_MOST_WORKERS = 8
_ZSTD_WORKERS = 2  # the bytes are the same for every number but 0; each takes some 40 MB
_INPUT = 1 << 18
_LARGEST_WINDOW = 32 << 20
SUFFIXES: dict[str, Codec] = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}
MEDIA_TYPES: dict[Codec, str] = {
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}


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


def compressed(pieces: Iterator[bytes], codec: Codec) -> Iterator[bytes]:
    """The same bytes for the same content, in whatever pieces it comes and on however many processors."""
    return _gzipped(pieces) if codec == "gzip" else _zstd(pieces)


def _gzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """One member, whose chunks are compressed beside each other, each with the end of the one before it as
    its dictionary."""
    crc, size, before = 0, 0, b""

    def jobs() -> Iterator[Job]:
        nonlocal crc, size, before
        for chunk, is_last in _chunks(pieces):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
            yield partial(_deflated, chunk, before, is_last)
            before = chunk[-_WINDOW:]

    yield _GZIP_HEADER
    yield from _in_order(jobs(), min(_MOST_WORKERS, os.cpu_count() or 1))
    yield struct.pack("<II", crc, size & 0xFFFFFFFF)


def _deflated(chunk: bytes, before: bytes, is_last: bool) -> bytes:
    squeeze = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=before)
    return squeeze.compress(chunk) + squeeze.flush(zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH)


def _zstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    settings = {"level": ZSTD_LEVEL, "threads": _ZSTD_WORKERS, "write_checksum": True}
    frame = _zstandard().ZstdCompressor(write_content_size=False, **settings).compressobj()
    yield from _in_order((partial(frame.compress, chunk) for chunk, _ in _chunks(pieces)), 1)
    yield frame.flush()


def _chunks(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Of one size, but for the last, which is told as such."""
    parts: list[bytes] = []
    there = 0
    for piece in pieces:
        parts.append(piece)
        there += len(piece)
        while there > _JOB:
            whole = b"".join(parts)
            yield whole[:_JOB], False
            parts, there = [whole[_JOB:]], there - _JOB
    yield b"".join(parts), True


def _in_order(jobs: Iterator[Job], workers: int) -> Iterator[bytes]:
    """What they come to, while the next ones are prepared."""
    running: deque[Future[bytes]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for job in jobs:
            running.append(pool.submit(job))
            if len(running) > workers + 1:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


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
    for data in pieces_of(head, partial(_exactly, file, tap)):
        try:
            piece = frame.decompress(data)
        except library.ZstdError as error:
            raise BadBundle(f"its zstd stream is damaged ({error})") from None
        if piece:
            yield piece
    if not frame.eof or frame.unused_data:
        raise BadBundle("its zstd stream does not end where its last block does")
    _at_its_end(b"", file, tap, ZSTD_MAGIC)


def _exactly(file: BinaryIO, tap: Callable[[bytes], object], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise _cut_off()
    tap(data)
    return data


def _next(file: BinaryIO, most: int, tap: Callable[[bytes], object]) -> bytes:
    data = file.read(most)
    if not data:
        raise _cut_off()
    tap(data)
    return data


def _cut_off() -> BadBundle:
    return BadBundle("it is cut off: its compressed stream does not end", "get it again")


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
