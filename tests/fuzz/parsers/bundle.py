"""Bundles: the file's bytes, the tar in it, its headers with a checksum that fits, and the manifest."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import NamedTuple

from sgl_tune.errors import SglTuneError
from sgl_tune.ship.archive import opened, size_told
from sgl_tune.ship.members import BLOCK, header, manifest_member, padded
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json, of_numbers
from tests.fuzz.parser import Parser, Wrong, command
from tests.sgl_tune.cache.caches import cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import HOT
from tests.sgl_tune.ship.forge import FILES, GOOD, RANK0, RANK1, manifest_of, parts_of, tar

_RANK = good()
_PLAIN = (gzip.decompress(GOOD),)
_SIZE = size_told(_PLAIN[0][:BLOCK])
_MANIFEST = (_PLAIN[0][BLOCK : BLOCK + _SIZE],)
_REST = _PLAIN[0][BLOCK + len(padded(_MANIFEST[0])) :]
_COMMANDS = (
    ("unpack", "BUNDLE", "--cache-dir", "work/cache", "--format", "json"),
    ("unpack", "BUNDLE", "--cache-dir", "work/cache", "--dry-run"),
    ("unpack", "BUNDLE", "--cache-dir", "work/cache", "--rekey", "model_path=/m"),
    ("inspect", "BUNDLE", "--format", "json"),
    ("verify", "BUNDLE"),
)
_OFTEN_READ_ALONE = 4


class _Made(NamedTuple):
    """`which` is a command, or beyond them the reader alone, which takes a fiftieth of the time."""

    raw: bytes
    which: int
    zstd: bool


def _make(random: Random) -> _Made:
    kind = random.randrange(10)
    if kind >= 8:
        raw = mutated((_RANK,), random, of_json, of_json, duplicated_key, of_bytes)
        files = {**FILES, RANK0: raw, RANK1: raw if random.random() < 0.8 else _RANK}
        told = manifest_of(files)
        plain = tar(told.to_bytes(), parts_of(told, files))
        return _Made(_squeezed(plain, False), random.randrange(len(_COMMANDS)), False)
    if kind == 0:
        raw = mutated((GOOD,), random, of_bytes)
        return _Made(raw, _which(random), False)
    if kind <= 2:
        plain = mutated(_PLAIN, random, of_bytes)
    elif kind <= 4:
        plain = _with_header(random)
    else:
        told = mutated(_MANIFEST, random, of_json, of_json, of_numbers, duplicated_key, of_bytes)
        plain = header(manifest_member(len(told))) + padded(told) + _REST
    zstd = random.random() < 0.2 and find_spec("zstandard") is not None
    return _Made(_squeezed(plain, zstd), _which(random), zstd)


def _which(random: Random) -> int:
    return random.randrange(len(_COMMANDS) * _OFTEN_READ_ALONE)


def _with_header(random: Random) -> bytes:
    """One header's field is another, and its checksum says so; or a block is repeated, moved or lost."""
    plain = bytearray(_PLAIN[0])
    heads = [at for at in range(0, len(plain), BLOCK) if plain[at + 257 : at + 262] == b"ustar"]
    at = random.choice(heads)
    if random.random() < 0.3:
        block = bytes(plain[at : at + BLOCK])
        to = random.randrange(0, len(plain), BLOCK)
        plain[to:to] = block
        if random.random() < 0.5:
            del plain[at : at + BLOCK]
        return bytes(plain)
    begin, size = random.choice(((0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100)))
    if random.random() < 0.2:
        begin, size = random.choice(((257, 8), (265, 32), (329, 16), (345, 155)))
    field = mutated((bytes(plain[at + begin : at + begin + size]).rstrip(b"\0"),), random, of_bytes)
    plain[at + begin : at + begin + size] = field[:size].ljust(size, b"\0")
    plain[at + 148 : at + 156] = b" " * 8
    plain[at + 148 : at + 156] = b"%06o\0 " % sum(plain[at : at + BLOCK])
    return bytes(plain)


def _squeezed(plain: bytes, zstd: bool) -> bytes:
    if not zstd:
        return gzip.compress(plain, 1, mtime=0)
    import zstandard

    made: bytes = zstandard.ZstdCompressor().compress(plain)
    return made


def _read(made: _Made, folder: Path) -> None:
    bundle = folder / ("b.tar.zst" if made.zstd else "b.tar.gz")
    bundle.write_bytes(made.raw)
    (folder / "work").mkdir()
    if len(made.raw) % 2:
        write_ranks(cache_folder(folder / "work/cache"), rank_names(2), good(x=["MoERunner", 1, HOT]))
    before = _below(folder / "work")
    if made.which >= len(_COMMANDS):
        with opened(bundle) as found:
            for _, content in found.archive.each():
                for _ in content:
                    pass
        return
    words = [bundle.name if word == "BUNDLE" else word for word in _COMMANDS[made.which]]
    ran = command(*words)
    there = {path.name for path in folder.iterdir()} - {bundle.name, "work"}
    after = _below(folder / "work")
    if there or {path.partition("/")[0] for path in after} - {"cache"} or (ran.code and before != after):
        raise Wrong("something was written where nothing may be", f"{there} {ran.code}")


def _below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


PARSER = Parser(_make, _read, ours=(SglTuneError,))
