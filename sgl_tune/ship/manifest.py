"""`sgl-tune-bundle.json`, the first member of a bundle: its contents, its target, and each file's digest."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from runtime.record.checked import WrongMember, from_plain
from sgl_tune.errors import CheckFailed
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.ship.places import OFFERS, clash, folders_above, name_fault, store_of
from sgl_tune.stores.find import TACTICS
from sgl_tune.stores.rows import BY_ID
from sgl_tune.units import human_bytes, shown

NAME = "sgl-tune-bundle.json"
SCHEMA_VERSION = 1
DEFAULT_PLACE = "/sgl-tune"
LARGEST_MANIFEST = 32 << 20
MOST_FILES = 200_000
MOST_FOLDERS = 250_000
LARGEST_FILE = 4 << 30
LARGEST_TACTICS = 16 << 20
LARGEST_BUNDLE = 64 << 30
_MOST_MARKS = 3 * MOST_FILES + 50_000  # commas and brackets, each of which takes many bytes in memory
_DIGEST = re.compile(r"[0-9a-f]{64}")
_AS_PACK_WRITES = "get it again, or pack it again with `sgl-tune pack`"


class BadBundle(CheckFailed):
    """A file is no bundle, or is not what its manifest says."""


class PackedFile(NamedTuple):
    sha256: str
    size: int


@dataclass(frozen=True)
class PackedCache:
    """A cache of tactics: its folder, and what its files and their manifest say about it."""

    path: str
    key: str
    flashinfer: str
    arch: str
    files: int
    entries: int
    environment: Mapping[str, str] = field(default_factory=dict)
    key_parts: tuple[str, ...] = ()
    deployment: str | None = None
    sglang: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class PackedStore:
    """A store in a bundle. `executable`: a server that loads it runs its code."""

    store: str
    items: int
    files: int
    bytes: int
    executable: bool
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    archs: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()


@dataclass(frozen=True)
class BundleManifest:
    """A bundle's manifest. `at`: where the files' absolute paths are right. `folders`: empty folders."""

    tool: str
    at: str
    caches: tuple[PackedCache, ...] = ()
    stores: tuple[PackedStore, ...] = ()
    files: Mapping[str, PackedFile] = field(default_factory=dict)
    folders: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the same bytes for the same content: no time, no host name, sorted names."""
        told = {
            "schema_version": SCHEMA_VERSION,
            "tool": self.tool,
            "at": self.at,
            "caches": [asdict(cache) for cache in self.caches],
            "stores": [asdict(store) for store in self.stores],
            "folders": sorted(self.folders),
            "files": {path: list(self.files[path]) for path in sorted(self.files)},
        }
        return json.dumps(told, separators=(",", ":")).encode() + b"\n"

    @cached_property
    def digest(self) -> str:
        """Return the digest of the manifest, which is equal for equal contents, however compressed."""
        return f"sha256:{sha256(self.to_bytes()).hexdigest()}"

    def all_folders(self, most: int | None = None) -> set[str]:
        """Return all folders: those that contain files, and the empty ones."""
        return folders_above((*self.files, *(f"{folder}/" for folder in self.folders)), most)

    @property
    def bytes(self) -> int:
        """Return the size of the unpacked files."""
        return sum(file.size for file in self.files.values())

    @property
    def has_code(self) -> bool:
        return any(store.executable for store in self.stores)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cache.key for cache in self.caches))

    @property
    def archs(self) -> tuple[str, ...]:
        told = [cache.arch for cache in self.caches] + [arch for row in self.stores for arch in row.archs]
        return tuple(sorted(set(told)))

    @property
    def gpus(self) -> tuple[str, ...]:
        told = (cache.environment.get("gpu") for cache in self.caches)
        return tuple(sorted(set(filter(None, told))))


def parse_bundle_manifest(raw: bytes) -> BundleManifest:
    """Parse a manifest; raise BadBundle for anything that `pack` never writes. Sizes are checked before
    anything of that size is made."""
    content = _json(raw)
    if content.get("schema_version") != SCHEMA_VERSION:
        version = shown(content.get("schema_version"))
        raise BadBundle(
            f"{NAME}: schema_version is {version}, not {SCHEMA_VERSION}",
            "a newer sgl-tune may read it" if type(content.get("schema_version")) is int else _AS_PACK_WRITES,
        )
    files = _files(content.pop("files", None))
    try:
        manifest: BundleManifest = from_plain(BundleManifest, content, NAME)
    except WrongMember as error:
        raise _bad(str(error)) from None
    manifest = BundleManifest(**{**vars(manifest), "files": files})
    if not manifest.at.startswith("/") or name_fault(manifest.at.lstrip("/") or "x"):
        raise _bad(f"`at` is {shown(manifest.at)}, which is no absolute path")
    _check_names(manifest)
    _check_rows(manifest)
    return manifest


def _json(raw: bytes) -> dict[str, Any]:
    if len(raw) > LARGEST_MANIFEST:
        raise _bad(f"{human_bytes(len(raw))} are more than a manifest can be")
    if not raw.isascii():
        raise _bad("holds bytes that are no ASCII")
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > _MOST_MARKS:
        raise _bad(f"lists more than {MOST_FILES:,} files can take")
    try:
        content = json.loads(raw, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except BadBundle:
        raise
    except RecursionError:
        raise _bad("is nested too deep") from None
    except ValueError as error:
        raise _bad(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise _bad(f"is {shown(content)}, not a JSON object")
    if is_deeper(content, DEEPEST):
        raise _bad("is nested too deep")
    return content


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise _bad(f"{shown(twice)} stands in it twice")
    return found


def _no_constant(name: str) -> None:
    raise _bad(f"holds {name}, which is not JSON")


def _files(told: Any) -> dict[str, PackedFile]:
    if not isinstance(told, dict):
        raise _bad(f"`files` is {shown(told)}, not a JSON object")
    if len(told) > MOST_FILES:
        raise _bad(f"lists {len(told):,} files; a bundle holds {MOST_FILES:,} at most")
    found = {path: _file(path, row) for path, row in told.items()}
    if (total := sum(file.size for file in found.values())) > LARGEST_BUNDLE:
        raise _bad(f"declares {human_bytes(total)}; a bundle holds {human_bytes(LARGEST_BUNDLE)} at most")
    return found


def _file(path: str, row: Any) -> PackedFile:
    if not (isinstance(row, list) and len(row) == 2 and type(row[1]) is int and isinstance(row[0], str)):
        raise _bad(f"{shown(path)} is {shown(row)}, not a digest and a size")
    digest, size = row
    if not _DIGEST.fullmatch(digest):
        raise _bad(f"{shown(path)} has the digest {shown(digest)}, which is no SHA-256")
    if not 0 <= size <= LARGEST_FILE:
        raise _bad(f"{shown(path)} has {shown(size)} bytes; a file has {human_bytes(LARGEST_FILE)} at most")
    return PackedFile(digest, size)


def _check_names(manifest: BundleManifest) -> None:
    for path in (*manifest.files, *manifest.folders):
        fault = name_fault(path)
        if fault:
            raise _bad(f"the name {shown(path)} {fault}")
    for path in (*manifest.files, *(f"{folder}/x" for folder in manifest.folders)):
        store = store_of(path)
        if store is None:
            raise _bad(f"{shown(path, 200)} lies in no store that ships")
        if store == TACTICS and path in manifest.files and manifest.files[path].size > LARGEST_TACTICS:
            raise _bad(f"{shown(path, 200)} has more bytes than a cache file can hold")
    if len(set(manifest.folders)) < len(manifest.folders):
        raise _bad("a folder stands in it twice")
    above = manifest.all_folders(MOST_FOLDERS)
    if len(above) > MOST_FOLDERS:
        raise _bad(f"has more than {MOST_FOLDERS:,} folders")
    confused = clash(manifest.files, above)
    if confused:
        raise _bad(confused[:600])


def _check_rows(manifest: BundleManifest) -> None:
    """Check that the summary of caches and stores matches the list of files, so that it cannot mislead."""
    caches, stores = counted(manifest.files)
    told = {cache.path: cache.files for cache in manifest.caches}
    if told != caches or len(told) != len(manifest.caches):
        raise _bad("`caches` are not those whose files it lists")
    for cache in manifest.caches:
        if cache.path != f"flashinfer/autotune/{cache.flashinfer}/{cache.arch}/{cache.key}":
            raise _bad(f"the manifest describes another cache than {shown(cache.path, 200)}")
    rows = {row.store: (row.files, row.bytes) for row in manifest.stores}
    if rows != stores or len(rows) != len(manifest.stores):
        raise _bad("`stores` are not those whose files it lists")
    for row in manifest.stores:
        if row.executable != BY_ID[row.store].executable:
            raise _bad(f"{row.store} is said to hold {'' if row.executable else 'no '}code")


def counted(files: Mapping[str, PackedFile]) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Return the number of files per cache, and the number and bytes of files per store."""
    caches: Counter[str] = Counter()
    stores: dict[str, tuple[int, int]] = {}
    for path, file in files.items():
        store = str(store_of(path))
        if store == TACTICS:
            caches[path.rpartition("/")[0]] += 1
        elif path not in OFFERS:
            many, size = stores.get(store, (0, 0))
            stores[store] = (many + 1, size + file.size)
        else:
            stores.setdefault(store, (0, 0))
    return dict(caches), stores


def equal_files(manifest: BundleManifest, paths: Iterable[str]) -> dict[str, str]:
    """Return the paths, in order, whose content equals an earlier path's, with that earlier path."""
    first: dict[PackedFile, str] = {}
    found = {}
    for path in paths:
        file = manifest.files[path]
        if file.size and first.setdefault(file, path) != path:
            found[path] = first[file]
    return found


def _bad(what: str) -> BadBundle:
    return BadBundle(f"{NAME}: {what}", _AS_PACK_WRITES)
