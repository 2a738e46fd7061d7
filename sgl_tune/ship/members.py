"""The bytes of a bundle. Every byte of its tar's members follows from the manifest: `pack` writes them, and a
reader expects them. Any other name, order, mode or kind is refused. The tar is compressed by gzip or zstd
with fixed settings: a fixed level, and exactly one stream per file."""

import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import NAME, BadBundle, BundleManifest, equal_files
from sgl_tune.ship.recognised import GZIP_MAGIC, ZSTD_MAGIC

BLOCK = 512
END = bytes(2 * BLOCK)
_LONGEST_FIELD = 100
_TYPES = {"file": b"0", "link": b"1", "folder": b"5", "long": b"x"}
_MODES = {"folder": b"0000755\0"}
_OWNER = b"0000000\0" * 2
_TIME = b"00000000000\0"
_TAIL = b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(167)

Kind = Literal["file", "link", "folder", "long"]
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


class Member(NamedTuple):
    """A member. `link`: the path of an earlier member with the same content."""

    path: str
    kind: Kind
    size: int = 0
    sha256: str = ""
    link: str = ""


def members(manifest: BundleManifest) -> Iterator[Member]:
    """Yield all members except the manifest, in the order of their names."""
    folders = manifest.all_folders()
    names = sorted((*manifest.files, *folders))
    links = equal_files(manifest, (path for path in names if path in manifest.files))
    for path in names:
        if path in folders:
            yield Member(path, "folder")
        elif path in links:
            yield Member(path, "link", manifest.files[path].size, manifest.files[path].sha256, links[path])
        else:
            yield Member(path, "file", manifest.files[path].size, manifest.files[path].sha256)


def manifest_member(size: int) -> Member:
    return Member(NAME, "file", size)


def header(member: Member) -> bytes:
    """Return the tar header of a member, after an extended header if a name is too long for its field."""
    name = member.path + "/" * (member.kind == "folder")
    records = b""
    if _is_long(name):
        records += _record("path", name)
    if _is_long(member.link):
        records += _record("linkpath", member.link)
    size = member.size if member.kind == "file" else 0
    block = _block(_field(name), member.kind, size, _field(member.link))
    if not records:
        return block
    return _block(_field(f"PaxHeaders/{name}"), "long", len(records), b"") + padded(records) + block


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def padded(content: bytes) -> bytes:
    return content + padding(len(content))


def _is_long(name: str) -> bool:
    return len(name) > _LONGEST_FIELD


def _field(name: str) -> bytes:
    return name.encode()[:_LONGEST_FIELD]


def _record(word: str, value: str) -> bytes:
    """Return a record of an extended header. The length at its start includes the length's own digits."""
    rest = f" {word}={value}\n".encode()
    size = len(rest) + len(str(len(rest)))
    return str(len(rest) + len(str(size))).encode() + rest


def _block(name: bytes, kind: Kind, size: int, link: bytes) -> bytes:
    mode = _MODES.get(kind, b"0000644\0")
    head = name.ljust(_LONGEST_FIELD, b"\0") + mode + _OWNER + b"%011o\0" % size + _TIME
    tail = _TYPES[kind] + link.ljust(_LONGEST_FIELD, b"\0") + _TAIL
    total = sum(head) + sum(tail) + 8 * ord(" ")
    return head + b"%06o\0 " % total + tail


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
