"""Write a bundle. Equal contents give equal bytes, whoever packs them, at any time and from any folder."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import sgl_tune
from sgl_tune.cache.folder import Way
from sgl_tune.cache.transaction import explained
from sgl_tune.cli.out import Output
from sgl_tune.errors import CheckFailed, UsageError, WorkFailed
from sgl_tune.ship.archive import check_bounds, tapped
from sgl_tune.ship.choice import Asked, Choice, choose, not_for, packed_cache
from sgl_tune.ship.contents import Contents, Source, add_cache, add_store
from sgl_tune.ship.manifest import (
    DEFAULT_PLACE,
    BadBundle,
    BundleManifest,
    PackedCache,
    PackedFile,
    PackedStore,
    counted,
    parse_bundle_manifest,
)
from sgl_tune.ship.members import (
    END,
    Codec,
    Member,
    codec_of_name,
    compressed,
    header,
    manifest_member,
    members,
    padded,
    padding,
)
from sgl_tune.stores.rows import BY_ID
from sgl_tune.verify.environment import Target
from sgl_tune.verify.stores import machine_of
from sgl_tune.writing import written

Progress = Callable[[int], None]
_MOST_OBJECTIONS = 5


@dataclass(frozen=True)
class Packed:
    """A written bundle. `digest`: of the file. `diff_id`: of the tar in it."""

    path: Path
    manifest: BundleManifest
    digest: str
    diff_id: str
    bytes: int


def manifest_of(contents: Contents, caches: Sequence[PackedCache], progress: Progress) -> BundleManifest:
    """Read every file once for its digest, and return the manifest."""
    files = {}
    with Way() as way:
        for path in sorted(contents.files):
            digest, size = sha256(), 0
            for piece in _pieces(contents.files[path], way):
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
    """Refuse to write what no reader would accept."""
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
    with written(path) as file, Way() as way:
        plain = tapped(_tar(manifest, contents, way, progress), tar.update)
        for piece in compressed(plain, codec):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        _check_unpackable(lambda: check_bounds(manifest, size))
        file.flush()
        os.fsync(file.fileno())
    return Packed(path, manifest, f"sha256:{digest.hexdigest()}", f"sha256:{tar.hexdigest()}", size)


def _tar(manifest: BundleManifest, contents: Contents, way: Way, progress: Progress) -> Iterator[bytes]:
    raw = manifest.to_bytes()
    yield header(manifest_member(len(raw))) + padded(raw)
    for member in members(manifest):
        yield header(member)
        if member.kind == "file":
            yield from _content(member, _pieces(contents.files[member.path], way))
            yield padding(member.size)
        if member.kind != "folder":
            progress(member.size)
    yield END


def _content(member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a file's content; raise WorkFailed if it changed since its digest was taken."""
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


def _pieces(source: Source, way: Way) -> Iterator[bytes]:
    if source.content is not None:
        yield source.content
        return
    with explained(source.folder):
        yield from way.to(source.folder, source.root).pieces(source.name)


def pack_bundle(
    out: Output, asked: Asked, machine: Target, output: Path, at: str = DEFAULT_PLACE, force: bool = False
) -> tuple[Packed, Contents, Choice]:
    """Pack a bundle; raise CheckFailed if a server would not use all of it, unless `force` is set."""
    codec = codec_of_name(output)
    choice = choose(asked, machine, lambda error: out.warn(f"{error.filename}: {error.strerror}"))
    _show_objections(out, choice, force)
    contents = Contents(at)
    with out.progress("reading") as progress:
        for one in choice.checked:
            add_cache(contents, one.cache)
        wanted = partial(not_for, machine_of(asked.by.flags, machine, None, None))
        for stored in choice.stores:
            add_store(contents, stored, progress.advance, wanted)
    caches = [packed_cache(one) for one in choice.checked]
    with out.progress("hashing") as progress:
        manifest = manifest_of(contents, caches, lambda size: progress.advance())
    with out.progress("packing", len(manifest.files)) as progress:
        packed = write_bundle(manifest, contents, output, codec, lambda size: progress.advance())
    return packed, contents, choice


def _show_objections(out: Output, choice: Choice, force: bool) -> None:
    for text in choice.warnings:
        out.warn(text)
    for note in choice.notes:
        out.note(note)
    for text in choice.objections[:_MOST_OBJECTIONS]:
        out.warn(text)
    more = len(choice.objections) - _MOST_OBJECTIONS
    if more > 0:
        out.warn(f"and {more} more; `sgl-tune verify` prints all of them")
    if choice.objections and not force:
        raise CheckFailed("a server would not use all of this", "mend or warm it, or `pack` it with --force")
