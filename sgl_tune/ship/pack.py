"""Write a bundle: equal contents give equal bytes, whoever packs them, when, and in which folder they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import sgl_tune
from sgl_tune.cache.folder import Folder, open_folder
from sgl_tune.cache.transaction import explained
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.ship.archive import check_bounds, tapped
from sgl_tune.ship.compression import Codec, compressed
from sgl_tune.ship.contents import Contents, Source
from sgl_tune.ship.manifest import (
    BadBundle,
    BundleManifest,
    PackedCache,
    PackedFile,
    PackedStore,
    counted,
    parse_bundle_manifest,
)
from sgl_tune.ship.members import END, Member, header, manifest_member, members, padded, padding
from sgl_tune.stores.rows import BY_ID
from sgl_tune.writing import written

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Packed:
    """`digest` is of the file's bytes, `diff_id` of the tar in it."""

    path: Path
    manifest: BundleManifest
    digest: str
    diff_id: str
    bytes: int


def manifest_of(contents: Contents, caches: Sequence[PackedCache], progress: Progress) -> BundleManifest:
    """Reads every file once, for its digest."""
    files = {}
    with _Reader() as reader:
        for path in sorted(contents.files):
            digest, size = sha256(), 0
            for piece in reader.pieces(contents.files[path]):
                digest.update(piece)
                size += len(piece)
            files[path] = PackedFile(digest.hexdigest(), size)
            progress(size)
    manifest = BundleManifest(
        f"sgl-tune {sgl_tune.__version__}",
        contents.at,
        tuple(sorted(caches, key=lambda cache: cache.path)),
        tuple(_rows(contents, files)),
        files,
        tuple(sorted(contents.folders)),
    )
    _check_unpackable(lambda: parse_bundle_manifest(manifest.to_bytes()))
    return manifest


def _check_unpackable(check: Callable[[], object]) -> None:
    """What no reader would take is not written."""
    try:
        check()
    except BadBundle as error:
        raise UsageError(f"this cannot be packed: {error.message}", "pack less of it") from None


def _rows(contents: Contents, files: Mapping[str, PackedFile]) -> Iterator[PackedStore]:
    for store, (many, size) in sorted(counted(files)[1].items()):
        told = contents.stores[store]
        versions = {name: tuple(sorted(found)) for name, found in sorted(told.versions.items())}
        archs, pythons = tuple(sorted(told.archs)), tuple(sorted(told.pythons))
        executable = BY_ID[store].executable
        yield PackedStore(store, told.items, many, size, executable, versions, archs, pythons)


def write_bundle(
    manifest: BundleManifest, contents: Contents, path: Path, codec: Codec, progress: Progress
) -> Packed:
    digest, tar, size = sha256(), sha256(), 0
    with written(path) as file, _Reader() as reader:
        plain = tapped(_tar(manifest, contents, reader, progress), tar.update)
        for piece in compressed(plain, codec):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        _check_unpackable(lambda: check_bounds(manifest, size))
        file.flush()
        os.fsync(file.fileno())
    return Packed(path, manifest, f"sha256:{digest.hexdigest()}", f"sha256:{tar.hexdigest()}", size)


def _tar(
    manifest: BundleManifest, contents: Contents, reader: _Reader, progress: Progress
) -> Iterator[bytes]:
    raw = manifest.to_bytes()
    yield header(manifest_member(len(raw))) + padded(raw)
    for member in members(manifest):
        yield header(member)
        if member.kind == "file":
            yield from _content(member, reader.pieces(contents.files[member.path]))
            yield padding(member.size)
        if member.kind != "folder":
            progress(member.size)
    yield END


def _content(member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """WorkFailed where it is not what it was when its digest was taken."""
    digest, size = sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        if size > member.size:
            break
        yield piece
    if size != member.size or digest.hexdigest() != member.sha256:
        raise WorkFailed(
            f"{member.path}: somebody wrote to it while it was packed", "stop the server, and pack again"
        )


class _Reader:
    """Files of one folder after the other: each folder is opened once."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._at: tuple[Path, Path] | None = None
        self._folder: Folder | None = None

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def pieces(self, source: Source) -> Iterator[bytes]:
        if source.content is not None:
            yield source.content
            return
        with explained(source.folder):
            yield from self._entered(source).pieces(source.name)

    def _entered(self, source: Source) -> Folder:
        if self._folder is None or self._at != (source.folder, source.root):
            self._open.close()
            self._folder = self._open.enter_context(open_folder(source.folder, source.root))
            self._at = (source.folder, source.root)
        return self._folder
