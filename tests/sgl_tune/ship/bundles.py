"""Bundles of any size and for any GPU, of bytes that no compressor shortens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random

from sgl_tune.ship.manifest import BundleManifest, PackedCache, PackedFile, PackedStore
from sgl_tune.ship.members import END, compressed, header, manifest_member, members, padded

_PIECE = 1 << 20
KEY = "4aaede739ed1db5a"
H200 = "NVIDIA H200"
_ARCHS = {"NVIDIA H100 80GB HBM3": "sm90", H200: "sm90", "NVIDIA B200": "sm100"}


def make_bundle(
    path: Path, size: int = 100_000, seed: int = 1, gpu: str | None = H200, key: str = KEY
) -> Path:
    """Tactics for a GPU, or for none a store of TileLang's kernels: code."""
    random = Random(seed)
    content = b"".join(random.randbytes(min(_PIECE, size - at)) for at in range(0, size, _PIECE))
    path.write_bytes(squeezed(tactics([content], gpu, key) if gpu else code([content])))
    return path


def tactics(contents: Sequence[bytes], gpu: str = H200, key: str = KEY) -> Iterator[bytes]:
    """The pieces of a bundle's tar, as of the next one; a content per rank."""
    folder = f"flashinfer/autotune/0.7.2/{_ARCHS[gpu]}/{key}"
    files = {f"{folder}/rank_tp{at}_pp0_dp0.json": content for at, content in enumerate(contents)}
    model = ("Qwen/Qwen3-30B-A3B",)
    cache = PackedCache(folder, key, "0.7.2", _ARCHS[gpu], len(files), 40, {"gpu": gpu}, model)
    return _pieces(BundleManifest("sgl-tune", "/sgl-tune", (cache,), files=listed(files)), files)


def code(contents: Sequence[bytes], folders: int = 0) -> Iterator[bytes]:
    files = {f"tilelang/kernels/k{at:06}.so": content for at, content in enumerate(contents)}
    store = PackedStore("tilelang", 1, len(files), sum(map(len, contents)), True)
    empty = tuple(f"tilelang/kernels/{at:06}" for at in range(folders))
    return _pieces(BundleManifest("sgl-tune", "/sgl-tune", (), (store,), listed(files), empty), files)


def listed(files: Mapping[str, bytes]) -> dict[str, PackedFile]:
    return {path: PackedFile(sha256(content).hexdigest(), len(content)) for path, content in files.items()}


def _pieces(manifest: BundleManifest, files: Mapping[str, bytes]) -> Iterator[bytes]:
    raw = manifest.to_bytes()
    yield header(manifest_member(len(raw))) + padded(raw)
    for member in members(manifest):
        yield header(member) + (padded(files[member.path]) if member.kind == "file" else b"")
    yield END


def squeezed(pieces: Iterable[bytes]) -> bytes:
    return b"".join(compressed(pieces, "gzip"))
