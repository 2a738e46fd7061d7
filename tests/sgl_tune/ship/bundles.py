"""Bundles of any size and for any GPU, of bytes that no compressor shortens."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from random import Random

from sgl_tune.ship.compression import compressed
from sgl_tune.ship.manifest import BundleManifest, PackedCache, PackedFile, PackedStore
from sgl_tune.ship.members import END, header, manifest_member, members, padded

_PIECE = 1 << 20
KEY = "4aaede739ed1db5a"
_ARCHS = {"NVIDIA H100 80GB HBM3": "sm90", "NVIDIA H200": "sm90", "NVIDIA B200": "sm100"}


def make_bundle(
    path: Path, size: int = 100_000, seed: int = 1, gpu: str | None = "NVIDIA H200", key: str = KEY
) -> Path:
    """Tactics for a GPU, or for none a store of TileLang's kernels: code."""
    random = Random(seed)
    content = b"".join(random.randbytes(min(_PIECE, size - at)) for at in range(0, size, _PIECE))
    path.write_bytes(tactics(content, gpu, key) if gpu else code(content))
    return path


def tactics(content: bytes, gpu: str, key: str = KEY) -> bytes:
    folder = f"flashinfer/autotune/0.7.2/{_ARCHS[gpu]}/{key}"
    cache = PackedCache(folder, key, "0.7.2", _ARCHS[gpu], 1, 40, {"gpu": gpu}, ("Qwen/Qwen3-30B-A3B",))
    files = {f"{folder}/rank_tp0_pp0_dp0.json": content}
    return _bundle(BundleManifest("sgl-tune", "/sgl-tune", (cache,), files=listed(files)), files)


def code(content: bytes) -> bytes:
    files = {"tilelang/kernels/one.so": content}
    store = PackedStore("tilelang", 1, 1, len(content), True)
    return _bundle(BundleManifest("sgl-tune", "/sgl-tune", (), (store,), listed(files)), files)


def listed(files: Mapping[str, bytes]) -> dict[str, PackedFile]:
    return {path: PackedFile(sha256(content).hexdigest(), len(content)) for path, content in files.items()}


def _bundle(manifest: BundleManifest, files: Mapping[str, bytes]) -> bytes:
    raw = manifest.to_bytes()
    parts = [header(manifest_member(len(raw))), padded(raw)]
    for member in members(manifest):
        parts += [header(member), padded(files[member.path]) if member.kind == "file" else b""]
    whole = b"".join([*parts, END])
    pieces = (whole[at : at + _PIECE] for at in range(0, len(whole), _PIECE))
    return b"".join(compressed(pieces, "gzip"))
