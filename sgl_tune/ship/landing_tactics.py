"""Move a cache of tactics from the staging folder to its server's folder, by the common transaction."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from runtime.flashinfer.versions import NEWEST
from sgl_tune.cache.folder import Folder, Owner, open_folder, read_below
from sgl_tune.cache.layouts.cache import MANIFEST, Cache, RankFile
from sgl_tune.cache.loader import metadata_mismatches
from sgl_tune.cache.manifest import BrokenManifest, Manifest, parse_manifest
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.record import BrokenCacheFile, CacheFile, parse_cache_file
from sgl_tune.cache.store import write_group
from sgl_tune.cache.transaction import explained, locked, publish
from sgl_tune.errors import UsageError

_REPLACE = "replace the cache with --replace, or prune it first"
Say = Callable[[str], None]


class LandedCache(NamedTuple):
    """A cache that has landed. `did`: new, same, merged or replaced."""

    path: str
    did: str
    files: int
    notes: tuple[str, ...] = ()


class _Given(NamedTuple):
    """The bundle's files for one folder."""

    path: Path
    files: Mapping[str, bytes]

    @property
    def ranks(self) -> dict[str, bytes]:
        return {name: raw for name, raw in self.files.items() if name != MANIFEST}


def foreseen(cache: Cache, staged: Path, root: Path, replace: bool) -> LandedCache:
    """Return what landing will do; raise UsageError if existing files and the bundle's cannot be merged."""
    given = _given(cache, staged, root)
    there = _there(given.path, root)
    did = _did(given, there, replace)
    if did == "merged":
        _check_mergeable(given, there)
    return LandedCache(given.path.relative_to(root).as_posix(), did, len(given.files))


def land_cache(
    cache: Cache, staged: Path, root: Path, replace: bool, owner: Owner | None, say: Say
) -> LandedCache:
    given = _given(cache, staged, root)
    where = given.path.relative_to(root).as_posix()
    did = _did(given, _there(given.path, root), replace)
    notes: tuple[str, ...] = ()
    if did != "merged":
        with locked(given.path, say=say, root=root, owner=owner) as (folder, told):
            there = _read_ranks(folder)
            did = _did(given, there, replace)
            if did in ("new", "replaced"):
                publish(folder, given.files, remove=there.keys() - given.files.keys())
            notes = tuple(told)
    if did == "merged":
        notes += tuple(_merge(given, root, say, owner))
    return LandedCache(where, did, len(given.files), notes)


def _given(cache: Cache, staged: Path, root: Path) -> _Given:
    files = {file.path.name: read_below(file.path, staged) for file in cache.files}
    if cache.manifest:
        files[MANIFEST] = read_below(cache.manifest, staged)
    return _Given(root / cache.path.relative_to(staged), files)


def _there(folder: Path, root: Path) -> dict[str, bytes]:
    """Return the rank files in a folder; none if it does not exist."""
    with explained(folder):
        try:
            with open_folder(folder, root) as opened:
                return _read_ranks(opened)
        except FileNotFoundError:
            return {}


def _read_ranks(folder: Folder) -> dict[str, bytes]:
    found = {}
    for name in sorted(folder.names()):
        if RankName.parse(name):
            _, raw = folder.read(name)
            if raw is None:
                raise UsageError(f"{folder.path / name}: is no regular file", "remove it, and unpack again")
            found[name] = raw
    return found


def _did(given: _Given, there: Mapping[str, bytes], replace: bool) -> str:
    if not there:
        return "new"
    if there == given.ranks:
        return "same"
    return "replaced" if replace else "merged"


def _check_mergeable(given: _Given, there: Mapping[str, bytes]) -> None:
    for group in _groups(given, there):
        theirs = _parsed(given.path, given.ranks, group)
        saved = theirs.metadata
        if not isinstance(saved, dict):
            raise UsageError(
                f"{given.path}: the bundle's files do not say for which machine they are", _REPLACE
            )
        for name in group & there.keys():
            try:
                file = parse_cache_file(given.path / name, there[name])
            except BrokenCacheFile:
                continue  # the writer sets it aside, as in `warm`
            known = file.metadata if isinstance(file.metadata, dict) else {}
            hard, _ = metadata_mismatches(known, {k: str(v) for k, v in saved.items()}, NEWEST)
            if known and hard:
                field, mismatch = next(iter(hard.items()))
                raise UsageError(
                    f"{given.path / name}: was tuned in another environment ({field} is {mismatch.saved!r}"
                    f" there and {mismatch.current!r} in the bundle)",
                    _REPLACE,
                )


def _parsed(path: Path, files: Mapping[str, bytes], group: set[str]) -> CacheFile:
    """Return the one content of a group's files."""
    try:
        found = [parse_cache_file(path / name, files[name]) for name in sorted(group & files.keys())]
    except BrokenCacheFile as error:
        raise UsageError(f"the bundle's {error}: it cannot be merged", _REPLACE) from None
    if any(file.document != found[0].document for file in found):
        raise UsageError(f"{path}: the bundle's ranks differ, so they cannot be merged", _REPLACE)
    return found[0]


def _groups(given: _Given, there: Mapping[str, bytes]) -> list[set[str]]:
    """Return the groups of names that a server compares, of the bundle's and the existing files together."""
    names = given.ranks.keys() | there.keys()
    files = tuple(RankFile(given.path / name, RankName.parse(name)) for name in sorted(names))
    groups = [
        {file.path.name for file in group} for group in Cache(given.path, "sglang", files=files).groups()
    ]
    return [group for group in groups if group & given.ranks.keys()]


def _merge(given: _Given, root: Path, say: Say, owner: Owner | None) -> list[str]:
    notes: list[str] = []
    manifest = _manifest(given)
    for group in _groups(given, _there(given.path, root)):
        file = _parsed(given.path, given.ranks, group)
        metadata = {name: str(value) for name, value in file.metadata.items()}
        records = file.records if isinstance(file.records, dict) else None
        paths = [given.path / name for name in sorted(group)]
        done = write_group(
            paths, file.entries, metadata, records=records, manifest=manifest, say=say, owner=owner
        )
        notes += done.notes
    return notes


def _manifest(given: _Given) -> Manifest | None:
    try:
        raw = given.files.get(MANIFEST)
        return parse_manifest(given.path / MANIFEST, raw) if raw is not None else None
    except BrokenManifest:
        return None
