"""The only code that writes cache files: merged under a lock, with one content for all ranks of a group."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import sgl_tune
from runtime.flashinfer.versions import METADATA, NEWEST, RECORDS, FlashInfer, flashinfer_of
from sgl_tune.cache.folder import Folder, Owner, Signature
from sgl_tune.cache.layouts.cache import BROKEN, MANIFEST
from sgl_tune.cache.loader import Loaded, load_document, metadata_mismatches
from sgl_tune.cache.lock import LOCK_SECONDS
from sgl_tune.cache.manifest import BrokenManifest, Manifest, parse_manifest
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.record import BrokenCacheFile, CacheFile, parse_cache_file, serialise
from sgl_tune.cache.transaction import explained, locked, publish, silent
from sgl_tune.errors import WorkFailed

_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write. `digest`: the sha256 of every file of the group."""

    paths: tuple[Path, ...]
    digest: str
    entries: int
    added: int
    changed: int
    notes: tuple[str, ...]


@dataclass
class _Merged:
    """The content to write: what is kept of the files on the disk, overlaid by the new entries."""

    metadata: dict[str, Any]
    writer: FlashInfer
    entries: dict[str, Any] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)
    set_aside: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def write_group(
    paths: Sequence[Path],
    entries: Mapping[str, Any],
    metadata: Mapping[str, str],
    *,
    records: Mapping[str, Any] | None = None,
    manifest: Manifest | None = None,
    replace_conflicting: bool = False,
    timeout: float = LOCK_SECONDS,
    say: Callable[[str], None] = silent,
    owner: Owner | None = None,
) -> Written:
    """Add entries to all files of one TP group and keep existing ones. The files become equal byte for
    byte, because a server that finds a difference in a group deletes every rank's file."""
    (place,), names = {path.parent for path in paths}, [path.name for path in paths]
    with locked(place, timeout, say, owner=owner) as (folder, notes):
        for _ in range(_ATTEMPTS):
            seen = _signatures(folder, names)
            with explained(place):
                merged = _merge(folder, names, metadata, replace_conflicting)
            kept = dict(merged.entries)
            merged.entries.update(entries)
            merged.records.update(records or {})
            content = serialise(merged.metadata, merged.entries, merged.records or None, merged.writer)
            files = merged.set_aside | dict.fromkeys(names, content)
            if manifest:
                files[MANIFEST] = _stamp(manifest, folder, names, content)
            if publish(folder, files, unchanged=partial(_still, folder, names, seen)):
                return _report(paths, content, kept, merged, notes)
    raise WorkFailed(
        f"{place}: a server keeps writing these files", "stop it, or warm before starting the server"
    )


def _signatures(folder: Folder, names: Sequence[str]) -> list[Signature | None]:
    """Return what shows that a stock server, which takes no lock, has written meanwhile."""
    return [folder.signature(name) for name in names]


def _still(folder: Folder, names: Sequence[str], seen: Sequence[Signature | None]) -> bool:
    return _signatures(folder, names) == seen


def _merge(
    folder: Folder, names: Sequence[str], metadata: Mapping[str, str], replace_conflicting: bool
) -> _Merged:
    merged = _Merged(dict(metadata), flashinfer_of(str(metadata.get("flashinfer_version"))))
    for name in names:
        path = folder.path / name
        try:
            status, raw = folder.read(name)
        except FileNotFoundError:
            continue
        if S_ISDIR(status.st_mode):
            raise WorkFailed(f"{path}: is a folder, so no cache file can take its place", "remove it")
        if raw is None:
            merged.notes.append(f"{path}: no regular file; replaced by one")
            continue
        try:
            file = parse_cache_file(path, raw)
        except BrokenCacheFile as error:
            _set_aside(merged, path, raw, error.what)
            continue
        _keep(merged, file, metadata, replace_conflicting)
    return merged


def _keep(merged: _Merged, file: CacheFile, metadata: Mapping[str, str], replace_conflicting: bool) -> None:
    """Merge a file as FlashInfer saves: the same environment merges, an unknown one is replaced."""
    saved = file.metadata
    hard, soft = metadata_mismatches(saved, metadata, NEWEST) if saved is not None else ({}, {})
    if hard and not replace_conflicting:
        field_name, mismatch = next(iter(hard.items()))
        raise WorkFailed(
            f"{file.path}: tuned in another environment ({field_name} is {mismatch.saved!r} there and"
            f" {mismatch.current!r} here), so its entries cannot be kept",
            "move it away, remove it with `sgl-tune prune`, or allow replacing it",
        )
    if hard or soft:
        merged.notes.append(f"{file.path}: replaced, since it was tuned in another environment")
        return
    if not _is_writable(file):
        _set_aside(merged, file.path, file.raw, "it is nested too deep")
        return
    document, writer = file.document, merged.writer
    loads = {key for key, value in document.items() if key == METADATA or _loads(key, value, writer)}
    if len(loads) < len(document):
        _set_aside(merged, file.path, file.raw, "some of its entries would crash the server")
    if isinstance(saved, dict):  # same environment: keep its wildcards and foreign members
        merged.metadata = {**merged.metadata, **saved}
    usable = {key: value for key, value in file.entries.items() if key in loads}
    merged.entries = {**usable, **merged.entries}
    if RECORDS in loads & writer.members:
        merged.records = {**file.records, **merged.records}


def _is_writable(file: CacheFile) -> bool:
    try:
        json.dumps(file.document, indent=2)
    except RecursionError:
        return False
    return True


def _loads(key: str, value: Any, reader: FlashInfer) -> bool:
    return isinstance(load_document({key: value}, {}, reader), Loaded)


def _set_aside(merged: _Merged, path: Path, raw: bytes, why: str) -> None:
    merged.set_aside[path.name + BROKEN] = raw
    merged.notes.append(f"{path}: broken ({why}); kept as {path.name}{BROKEN} and written anew")


def _stamp(manifest: Manifest, folder: Folder, names: Sequence[str], content: bytes) -> bytes:
    """Return the manifest with the digests of these and of the folder's other files, and with earlier
    measurements of entries that are kept."""
    before = _manifest_in(folder)
    digest, older = sha256(content).hexdigest(), before.races.items()
    named = {name: other for name, other in before.files.items() if RankName.parse(name)}
    files = {name: other for name, other in named.items() if folder.status(name)}
    return replace(
        manifest,
        files=dict(sorted({**files, **dict.fromkeys(names, digest)}.items())),
        measured={**before.measured, **manifest.measured},
        races={**{key: race for key, race in older if key not in manifest.measured}, **manifest.races},
        routings=manifest.routings or before.routings,
        tool=manifest.tool or f"sgl-tune {sgl_tune.__version__}",
        created=manifest.created or datetime.now(timezone.utc).isoformat(timespec="seconds"),
    ).to_bytes()


def _manifest_in(folder: Folder) -> Manifest:
    try:
        _, raw = folder.read(MANIFEST)
        return parse_manifest(folder.path / MANIFEST, raw or b"")
    except (OSError, BrokenManifest):
        return Manifest({})


def _report(
    paths: Sequence[Path], content: bytes, kept: Mapping[str, Any], merged: _Merged, settled: Sequence[str]
) -> Written:
    shared = kept.keys() & merged.entries.keys()
    return Written(
        tuple(paths),
        sha256(content).hexdigest(),
        entries=len(merged.entries),
        added=len(merged.entries) - len(shared),
        changed=sum(kept[key] != merged.entries[key] for key in shared),
        notes=(*settled, *merged.notes),
    )
