"""The members of a bundle's tar. Every byte of them follows from the manifest: `pack` writes them, and a
reader expects them. Any other name, order, mode or kind is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from sgl_tune.ship.manifest import NAME, BundleManifest, equal_files

BLOCK = 512
END = bytes(2 * BLOCK)
_LONGEST_FIELD = 100
_TYPES = {"file": b"0", "link": b"1", "folder": b"5", "long": b"x"}
_MODES = {"folder": b"0000755\0"}
_OWNER = b"0000000\0" * 2
_TIME = b"00000000000\0"
_TAIL = b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(167)

Kind = Literal["file", "link", "folder", "long"]


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
