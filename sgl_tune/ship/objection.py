"""Why a block of a tar is not the one that a bundle has there, in words. Nothing is done by what it says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from sgl_tune.ship.manifest import NAME, BundleManifest
from sgl_tune.ship.members import BLOCK, Member
from sgl_tune.ship.places import name_fault
from sgl_tune.units import shown

Take = Callable[[int], bytes]
_OCTAL = re.compile(rb"[0-7]{1,11}[\0 ]*")
_LARGEST_RECORDS = 64 << 10
_ODD_KINDS = {
    b"\0": "is a member of the old kind, before ustar",
    b"2": "is a symbolic link",
    b"3": "is a character device",
    b"4": "is a block device",
    b"6": "is a FIFO",
    b"7": "is a contiguous file, which nobody writes",
    b"S": "is a sparse file",
    b"L": "has a long name of GNU's kind",
    b"K": "has a long link of GNU's kind",
    b"M": "is the rest of a file of another volume",
    b"V": "is a volume's label",
    b"D": "is a folder's listing of GNU's kind",
    b"N": "has a long name of GNU's old kind",
    b"X": "has an extended header of Solaris' kind",
    b"g": "has a global extended header",
}
_FIELDS = {"mode": (100, 108), "owner": (108, 116), "group": (116, 124), "time": (136, 148)}
_REST = {"owner's name": (265, 297), "group's name": (297, 329), "device": (329, 345), "prefix": (345, 512)}


def size_told(block: bytes) -> int:
    """0 where it is no octal number."""
    field = block[124:136]
    return int(field.rstrip(b"\0 "), 8) if _OCTAL.fullmatch(field) else 0


def objection(block: bytes, wanted: Member | None, manifest: BundleManifest | None, rest: Take) -> str:
    """`wanted` is None where the tar should end; `rest` gives what follows the block."""
    if len(block) < BLOCK:
        return "it is cut off: its tar ends in the middle of a header"
    if not block.strip(b"\0"):
        return f"its tar ends before {wanted.path if wanted else NAME}, which belongs there"
    if not _sums_up(block):
        return "a header of its tar has the wrong checksum"
    kind, name = block[156:157], _name(block)
    if kind in _ODD_KINDS:
        return f"{name} {_ODD_KINDS[kind]}"
    if kind == b"x":
        return _of_records(block, name, wanted, manifest, rest)
    if kind not in (b"0", b"1", b"5"):
        return f"{name} is a member of the unknown kind {shown(kind)}"
    return _of_name(block, name, wanted, manifest)


def _name(block: bytes) -> str:
    name, prefix = block[:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    whole = prefix + b"/" + name if prefix else name
    return whole.decode("utf-8", "backslashreplace")


def _sums_up(block: bytes) -> bool:
    field = block[148:156].strip(b"\0 ")
    total = sum(block[:148]) + sum(block[156:]) + 8 * ord(" ")
    return field.isdigit() and len(field) < 9 and int(field, 10) == int(b"%o" % total)


def _of_records(
    block: bytes, name: str, wanted: Member | None, manifest: BundleManifest | None, rest: Take
) -> str:
    size = size_told(block)
    if size > _LARGEST_RECORDS:
        return f"{name} has an extended header of {size:,} bytes"
    records = _records(rest(size + -size % BLOCK)[:size])
    if records is None:
        return f"{name} is an extended header that cannot be read"
    odd = next((word for word, _ in records if word not in ("path", "linkpath")), None)
    if odd is not None:
        sparse = "a sparse file" if odd.startswith("GNU.sparse") else f"the word {shown(odd)}"
        return f"{name} is an extended header with {sparse}"
    if len({word for word, _ in records}) < len(records):
        return f"{name} is an extended header that says a word twice"
    told = dict(records)
    then = rest(BLOCK)
    if len(then) < BLOCK:
        return "it is cut off: its tar ends in the middle of a header"
    if then[156:157] in _ODD_KINDS or then[156:157] == b"x":
        return f"{_name(then)} {_ODD_KINDS.get(then[156:157], 'has two extended headers')}"
    return _of_name(then, told.get("path", _name(then)), wanted, manifest, told.get("linkpath"))


def _records(raw: bytes) -> list[tuple[str, str]] | None:
    found = []
    while raw:
        digits, blank, _ = raw[:12].partition(b" ")
        if not blank or not digits.isdigit():
            return None
        size = int(digits)
        record, raw = raw[len(digits) + 1 : size], raw[size:]
        word, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            return None
        found.append((word.decode("utf-8", "replace"), value[:-1].decode("utf-8", "backslashreplace")))
    return found


def _of_name(
    block: bytes, name: str, wanted: Member | None, manifest: BundleManifest | None, link: str | None = None
) -> str:
    path = name.removesuffix("/") if block[156:157] == b"5" else name
    fault = name_fault(path)
    if fault:
        return f"the name {shown(path)} {fault}"
    if manifest is None:
        if path != NAME:
            return f"its first member is {shown(path)}, and not {NAME}"
    elif path == NAME:
        return "its manifest stands in it twice"
    elif wanted is None or path != wanted.path:
        return _elsewhere(path, wanted, manifest)
    if wanted and block[156:157] == b"1":
        return _of_link(
            path, link or block[157:257].split(b"\0")[0].decode("utf-8", "replace"), wanted, manifest
        )
    return _of_fields(block, path, wanted)


def _elsewhere(path: str, wanted: Member | None, manifest: BundleManifest) -> str:
    """A name at the wrong place, or of nothing."""
    known = manifest.all_folders() | {*manifest.files}
    if path not in known:
        alike = {_folded(one): one for one in known}.get(_folded(path))
        if alike:
            return f"{shown(path)} differs from {shown(alike)} only by case or by normalisation"
        return f"{shown(path, 200)} is not in its manifest"
    if wanted is None or path < wanted.path:
        return f"{shown(path, 200)} stands in it twice, or out of its order"
    return f"{shown(wanted.path, 200)} is missing: its manifest lists it"


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()


def _of_link(path: str, link: str, wanted: Member, manifest: BundleManifest | None) -> str:
    fault = name_fault(link)
    if fault:
        return f"{path} is a link to {shown(link)}, which {fault}"
    files = manifest.files if manifest else {}
    if link not in files:
        return f"{path} is a link to {shown(link, 200)}, which is not in its manifest"
    if link >= path:
        return f"{path} is a link to {shown(link, 200)}, which comes later"
    if files[link] != files.get(path):
        return f"{path} is a link to {shown(link, 200)}, which has another content"
    return f"{path} is a link, and not as `pack` writes it"


def _of_fields(block: bytes, path: str, wanted: Member | None) -> str:
    kinds = {b"0": "file", b"1": "link", b"5": "folder"}
    kind = kinds[block[156:157]]
    if wanted and kind != wanted.kind:
        said = {"file": "a file", "link": "a link to its equal", "folder": "a folder"}
        return f"{path} is {said[kind]}, where {said[wanted.kind]} belongs"
    if not _OCTAL.fullmatch(block[124:136]):
        return f"{path}: its size is no octal number"
    if wanted and kind == "file" and size_told(block) != wanted.size:
        return f"{path} has {size_told(block):,} bytes, and its manifest says {wanted.size:,}"
    if block[257:265] != b"ustar\x0000":
        return f"{path}: its header is not of the kind ustar"
    usual = {"mode": {b"0000644\0", b"0000755\0"}, "time": {b"00000000000\0"}}
    for field, (begin, end) in _FIELDS.items():
        if block[begin:end] not in usual.get(field, {b"0000000\0"}):
            return f"{path}: its {field} is not as `pack` writes it"
    for field, (begin, end) in _REST.items():
        if block[begin:end].strip(b"\0") and field != "device":
            return f"{path}: its {field} is not as `pack` writes it"
    return f"{path}: its header is not as `pack` writes it"
