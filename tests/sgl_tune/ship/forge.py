"""How a hostile archive is made: a good bundle, and the pieces in which it may be another."""

import gzip
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from sgl_tune.ship.manifest import BundleManifest, PackedCache, PackedStore
from sgl_tune.ship.members import END, Member, header, manifest_member, members, padded
from tests.sgl_tune.ship.bundles import listed

KEY = "8e60e63bda689ee5"
CACHE = f"flashinfer/autotune/0.7.2/sm90/{KEY}"
KERNEL = "deep_gemm/cache/kernel.gemm.0123456789abcdef"
FILES = {
    f"{CACHE}/rank_tp0_pp0_dp0.json": b"{}",
    f"{CACHE}/rank_tp1_pp0_dp0.json": b"{}",
    f"{KERNEL}/kernel.cu": b"// code\n",
    f"{KERNEL}/kernel.cubin": b"\x7fELF" + bytes(700),
}


class Part(NamedTuple):
    """A member as its bytes stand in the tar."""

    path: str
    head: bytes
    content: bytes = b""


def manifest_of(files: dict[str, bytes]) -> BundleManifest:
    gemm = [raw for path, raw in files.items() if path.startswith("deep_gemm/")]
    store = PackedStore("deep-gemm", 1, len(gemm), sum(map(len, gemm)), True)
    cache = PackedCache(CACHE, KEY, "0.7.2", "sm90", len(files) - len(gemm), 1)
    return BundleManifest("sgl-tune 0.1.0", "/sgl-tune", (cache,), (store,), listed(files))


MANIFEST = manifest_of(FILES)


def parts_of(manifest: BundleManifest, files: dict[str, bytes]) -> list[Part]:
    return [
        Part(member.path, header(member), files[member.path] if member.kind == "file" else b"")
        for member in members(manifest)
    ]


def tar(raw: bytes, parts: list[Part], end: bytes = END) -> bytes:
    out = header(manifest_member(len(raw))) + padded(raw)
    return out + b"".join(part.head + padded(part.content) for part in parts) + end


def squeezed(plain: bytes) -> bytes:
    return gzip.compress(plain, 6, mtime=0)


def edited(head: bytes, **fields: bytes) -> bytes:
    """A header with other fields, and the checksum that fits them."""
    places = {
        "name": (0, 100), "mode": (100, 8), "uid": (108, 8), "gid": (116, 8), "size": (124, 12),
        "mtime": (136, 12), "kind": (156, 1), "link": (157, 100), "magic": (257, 8), "uname": (265, 32),
        "gname": (297, 32), "devmajor": (329, 8), "prefix": (345, 155), "tail": (500, 12),
    }  # fmt: skip
    block = bytearray(head[-512:])
    for field, value in fields.items():
        at, size = places[field]
        block[at : at + size] = value.ljust(size, b"\0")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return head[:-512] + bytes(block)


def extended(*records: tuple[str, str], kind: bytes = b"x", raw: bytes | None = None) -> bytes:
    """An extended header before another."""
    lines = []
    for word, value in records:
        rest = f" {word}={value}\n".encode()
        size = len(rest) + len(str(len(rest) + 3))
        lines.append(str(size).encode() + rest)
    body = b"".join(lines) if raw is None else raw
    head = header(Member("PaxHeaders/x", "file", len(body)))
    return edited(head, kind=kind) + padded(body)


def member(path: str, content: bytes = b"", **fields: bytes) -> Part:
    return Part(path, edited(header(Member(path, "file", len(content))), **fields), content)


RANK0, RANK1 = f"{CACHE}/rank_tp0_pp0_dp0.json", f"{CACHE}/rank_tp1_pp0_dp0.json"
CU, CUBIN = f"{KERNEL}/kernel.cu", f"{KERNEL}/kernel.cubin"
Change = Callable[[list[Part]], list[Part]]


def changed(change: Change, end: bytes = END) -> bytes:
    return squeezed(tar(MANIFEST.to_bytes(), change(parts_of(MANIFEST, FILES)), end))


def instead(path: str, *parts: Part) -> Change:
    return lambda there: [new for one in there for new in (parts if one.path == path else (one,))]


def replaced(path: str, change: Callable[[Part], Part]) -> Change:
    return lambda there: [change(one) if one.path == path else one for one in there]


def edited_at(path: str, **fields: bytes) -> Change:
    return replaced(path, lambda one: one._replace(head=edited(one.head, **fields)))


def before(path: str, raw: bytes) -> Change:
    return replaced(path, lambda one: one._replace(head=raw + one.head))


def added(*parts: Part) -> Change:
    return lambda there: [*there, *parts]


def of_raw(raw: bytes) -> bytes:
    return squeezed(tar(raw, parts_of(MANIFEST, FILES)))


def of_members(**members: Any) -> bytes:
    told = {**json.loads(MANIFEST.to_bytes()), **members}
    return of_raw(json.dumps(told).encode())


def of_files(change: Callable[[dict[str, Any]], object]) -> bytes:
    files = json.loads(MANIFEST.to_bytes())["files"]
    change(files)
    return of_members(files=files)


GOOD = squeezed(tar(MANIFEST.to_bytes(), parts_of(MANIFEST, FILES)))
PLAIN = gzip.decompress(GOOD)
