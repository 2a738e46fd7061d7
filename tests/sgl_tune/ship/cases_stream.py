"""What is wrong with the file itself, before anything in it is: and bombs."""

import json
import struct
import zlib
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from sgl_tune.ship.members import header, manifest_member
from tests.sgl_tune.ship.forge import (
    CU,
    CUBIN,
    FILES,
    GOOD,
    MANIFEST,
    PLAIN,
    edited,
    of_files,
    of_members,
    parts_of,
    squeezed,
    tar,
)

_WINDOW = struct.pack("<IBB", 0xFD2FB528, 0, 21 << 3) + b"\x01\x00\x00"  # a zstd frame of 2 GB, and a block


def _zeros(size: int) -> bytes:
    """So many of them, compressed, without ever being there at once."""
    squeeze, out = zlib.compressobj(9, zlib.DEFLATED, 31), []
    for _ in range(size >> 20):
        out.append(squeeze.compress(bytes(1 << 20)))
    return b"".join(out) + squeeze.flush()


def _declared_bomb() -> bytes:
    files = {path: list(file) for path, file in MANIFEST.files.items()}
    files[CUBIN] = [sha256(b"").hexdigest(), 3 << 30]
    rows = json.loads(MANIFEST.to_bytes())["stores"]
    rows[0]["bytes"] = (3 << 30) + len(FILES[CU])
    return of_members(files=files, stores=rows)


def _undeclared_bomb() -> bytes:
    """Behind the last member, where nothing is expected any more."""
    head = tar(MANIFEST.to_bytes(), parts_of(MANIFEST, FILES))
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [squeeze.compress(part) for part in (head, *[bytes(1 << 20)] * 64)]
    return b"".join([*parts, squeeze.flush()])


def _many(files: int) -> bytes:
    listed = {f"triton/{number}": ["0" * 64, 0] for number in range(files)}
    return of_members(files=listed)


def _zstd(plain: bytes, **settings: Any) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    made: bytes = zstandard.ZstdCompressor(**settings).compress(plain)
    return made


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    # compressed stream
    "empty": (lambda: b"", "neither gzip nor zstd"),
    "no archive": (lambda: b"GIF89a" + bytes(600), "neither gzip nor zstd"),
    "a plain tar": (lambda: PLAIN, "neither gzip nor zstd"),
    "cut in the gzip header": (lambda: GOOD[:6], "cut off: its compressed stream"),
    "cut in the stream": (lambda: GOOD[: len(GOOD) // 2], "cut off: its compressed stream"),
    "cut in the checksum": (lambda: GOOD[:-3], "cut off: its compressed stream"),
    "a wrong checksum": (lambda: GOOD[:-8] + b"\0\0\0\0" + GOOD[-4:], "gzip stream is damaged"),
    "a wrong length": (lambda: GOOD[:-4] + b"\1\2\3\4", "gzip stream is damaged"),
    "a flipped byte": (lambda: GOOD[:40] + bytes([GOOD[40] ^ 255]) + GOOD[41:], "is damaged|digest|JSON|not"),
    "garbage at the end": (lambda: GOOD + b"#!/bin/sh\n", "bytes follow the end of its compressed stream"),
    "two gzip members": (lambda: GOOD + squeezed(b"more"), "second compressed stream"),
    "zeros at the end": (lambda: GOOD + bytes(4096), "bytes follow the end of its compressed stream"),
    "a name in the gzip header": (
        lambda: GOOD[:3] + b"\x08" + GOOD[4:10] + b"../x\0" + GOOD[10:],
        "gzip header",
    ),
    "an extra field in the gzip header": (lambda: GOOD[:3] + b"\x04" + GOOD[4:], "gzip header"),
    "another method than deflate": (lambda: GOOD[:2] + b"\x07" + GOOD[3:], "gzip header"),
    "zstd, cut": (lambda: _zstd(PLAIN)[:-20], "cut off: its compressed stream"),
    "zstd, damaged": (lambda: _zstd(PLAIN)[:30] + b"\xff" * 20 + _zstd(PLAIN)[50:], "zstd stream is damaged"),
    "zstd, two frames": (lambda: _zstd(PLAIN) + _zstd(b"more"), "second compressed stream"),
    "zstd, a window of 2 GB": (lambda: _WINDOW + bytes(64), "zstd stream is damaged"),
    "zstd, a skippable frame": (
        lambda: b"\x50\x2a\x4d\x18\4\0\0\0abcd" + _zstd(PLAIN),
        "neither gzip nor zstd",
    ),
    # bombs
    "nothing but zeros": (lambda: _zeros(64 << 20), "ends before sgl-tune-bundle.json"),
    "a declared bomb": (_declared_bomb, "take 3.2 GB on a disk"),
    "an undeclared bomb": (_undeclared_bomb, "bytes follow the end of its tar"),
    "a manifest of 4 GB": (
        lambda: squeezed(edited(header(manifest_member(0)), size=b"37777777777")),
        "manifest has 4.3 GB",
    ),
    "100 GB declared": (
        lambda: of_files(
            lambda files: [files.update({f"triton/{n}": ["0" * 64, 4 << 30]}) for n in range(30)]
        ),
        "declares 128.8 GB; a bundle holds",
    ),
    "a file of 5 GB": (lambda: of_files(lambda files: files.update({CU: ["0" * 64, 5 << 30]})), "a file has"),
    "300,000 files": (lambda: _many(300_000), "more than 200,000 files"),
}
