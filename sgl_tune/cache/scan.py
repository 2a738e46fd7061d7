"""Read what the files of a cache hold, in one pass that keeps little memory, for thousands of caches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.flashinfer.versions import METADATA
from sgl_tune.cache.folder import Slurped, Way, read_below, reader
from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.layouts.find import resolve
from sgl_tune.cache.layouts.readers import ONE_FILE, OnError
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.record import RESERVED, BrokenCacheFile, CacheFile, Entry, parse_cache_file, sha256_of

if TYPE_CHECKING:
    from sgl_tune.cache.manifest import Manifest


_RECENT = 16
_CLUE = 96


class Scanner:
    """Reads caches. Equal files share one content, which is parsed once."""

    def __init__(self, digests: bool = False) -> None:
        self._digests = digests
        self._recent: dict[object, tuple[bytes, Content, str | None]] = {}

    def resolve(
        self, target: str | None, cache_dir: Path, on_error: OnError, skip: Collection[Path] = ()
    ) -> list[ScannedCache]:
        """Find and read the caches that a user means."""
        return self.scan_all(resolve(target, cache_dir, on_error, skip))

    def scan_all(self, caches: Iterable[Cache]) -> list[ScannedCache]:
        with Way() as way:
            return [self._scan(cache, way) for cache in caches]

    def scan(self, cache: Cache) -> ScannedCache:
        return self.scan_all([cache])[0]

    def _scan(self, cache: Cache, way: Way) -> ScannedCache:
        manifest, problem = None, None
        if cache.manifest and cache.layout == "sglang":
            manifest, problem = _manifest(cache.manifest, cache.root)
        files = list(self._scan_files(cache, way))
        return ScannedCache(cache, tuple(files), manifest, problem, _environment(cache, files))

    def _scan_files(self, cache: Cache, way: Way) -> Iterator[ScannedFile]:
        try:
            read = reader(cache.path, way, cache.root)
            for file in cache.files:
                with suppress(FileNotFoundError):  # a server replaced or removed the file meanwhile
                    yield self._scan_file(file, cache, read)
        except FileNotFoundError:
            return
        except OSError as error:
            for file in cache.files:
                yield _unreadable(file, cache, error)

    def _scan_file(self, file: RankFile, cache: Cache, read: Callable[[Path], Slurped]) -> ScannedFile:
        try:
            status, raw = read(file.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            return _unreadable(file, cache, error)
        if raw is None:
            broken = Content(file.path, cache.layout, problem="no regular file", root=cache.root)
            return ScannedFile(file.path, file.rank, 0, status.st_mtime, broken)
        content, digest = self._content(file.path, cache, raw)
        return ScannedFile(file.path, file.rank, status.st_size, status.st_mtime, content, digest)

    def _content(self, path: Path, cache: Cache, raw: bytes) -> tuple[Content, str | None]:
        """Return the content of a file. A known one is found by the file's end, where FlashInfer writes
        its checksum, and then compared in full. Hashing every byte would cost a fifth of the parsing."""
        clue = (cache.layout, len(raw), raw[-_CLUE:])
        known = self._recent.get(clue)
        if known is None or known[0] != raw:
            digest = sha256_of(raw) if self._digests else None
            content = _parse(path, cache.layout, raw)._replace(root=cache.root)
            known = self._recent[clue] = (raw, content, digest)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
        return known[1], known[2]


def _unreadable(file: RankFile, cache: Cache, error: OSError) -> ScannedFile:
    broken = Content(file.path, cache.layout, problem=f"unreadable ({error.strerror})", root=cache.root)
    return ScannedFile(file.path, file.rank, 0, None, broken)


def _parse(path: Path, layout: str, raw: bytes) -> Content:
    try:
        file = parse_cache_file(path, raw)
    except BrokenCacheFile as error:
        return Content(path, layout, problem=error.what)
    if layout == "flashinfer-v2":
        problem = _entry_problem(file.document)
        return Content(path, layout, entries=0 if problem else 1, problem=problem)
    environment = file.metadata if isinstance(file.metadata, dict) else None
    return Content(path, layout, file.count, environment, file.generation)


def _entry_problem(document: Mapping[str, Any]) -> str | None:
    """Return why FlashInfer would skip a managed entry {key, runner, tactic, profiling_policy}, or None."""
    missing = [name for name in ("key", "runner", "tactic") if name not in document]
    if missing:
        return f"it has no member {', '.join(missing)}"
    return None if isinstance(document["key"], str) else "its key is no text"


def _manifest(path: Path, root: Path | None) -> tuple[Manifest | None, str | None]:
    from sgl_tune.cache.manifest import BrokenManifest, read_manifest

    try:
        return read_manifest(path, root), None
    except BrokenManifest as error:
        return None, error.message


def _environment(cache: Cache, files: Sequence[ScannedFile]) -> Mapping[str, Any] | None:
    """Return the environment of the first file that has one; the managed store has one for all entries."""
    if cache.layout != "flashinfer-v2":
        return next((file.content.environment for file in files if file.content.environment), None)
    if cache.manifest is None:
        return None
    try:
        return parse_cache_file(cache.manifest, read_below(cache.manifest, cache.root)).document
    except (OSError, BrokenCacheFile):
        return None


class Content(NamedTuple):
    """One distinct content, shared by any number of ranks. Its entries are read again when needed, because
    keeping all of them during a listing takes longer than parsing them."""

    path: Path
    layout: str
    entries: int = 0
    environment: Mapping[str, Any] | None = None
    generation: Any = None
    problem: str | None = None
    root: Path | None = None

    def read_file(self, path: Path | None = None) -> CacheFile:
        path = path or self.path
        return parse_cache_file(path, read_below(path, self.root))

    def read_entries(self) -> list[Entry]:
        if self.problem:
            return []
        try:
            document = self.read_file().document
        except (OSError, BrokenCacheFile):
            return []  # it was fine a moment ago, so it is being written now
        return [Entry(key, value) for key, value in _entries(document, self.layout).items()]


class ScannedFile(NamedTuple):
    path: Path
    rank: RankName | None
    bytes: int
    modified: float | None
    content: Content
    digest: str | None = None


class ScannedCache(NamedTuple):
    """A scanned cache. `manifest`: ours. `manifest_problem`: why an existing manifest cannot be used."""

    cache: Cache
    files: tuple[ScannedFile, ...]
    manifest: Manifest | None
    manifest_problem: str | None
    environment: Mapping[str, Any] | None

    @property
    def contents(self) -> list[Content]:
        """Return the distinct contents, in the order of the ranks."""
        return list({id(file.content): file.content for file in self.files}.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def age(self) -> float | None:
        """Return the seconds since the last write."""
        times = [file.modified for file in self.files if file.modified is not None]
        return max(0.0, time.time() - max(times)) if times else None

    @property
    def entries(self) -> int:
        """Return the entries of one rank; in the managed store, all entries, because each is a file."""
        counts = [content.entries for content in self.contents]
        return sum(counts) if self.cache.layout == "flashinfer-v2" else max(counts, default=0)

    @property
    def is_foreign(self) -> bool:
        """Whether this is one file that nothing marks as a cache: other text, or other JSON."""
        if self.cache.layout != "files" or len(self.files) != 1:
            return False
        path, content = self.files[0].path, self.files[0].content
        if content.problem:
            return path.suffix != ".json"
        marked = content.environment is not None or content.generation is not None
        return content.entries > 0 and not marked and not any(e.parts for e in content.read_entries())

    @property
    def agree(self) -> bool:
        """Whether the files of every group are equal to a server: equal JSON, or for vLLM an equal
        summary."""
        if len(self.contents) < 2:
            return True
        if self.cache.layout == "vllm":
            return _are_alike([content for content in self.contents if content.path.name != ONE_FILE])
        by_path = {file.path: file.content for file in self.files}
        groups = [[by_path.get(file.path) for file in group] for group in self.cache.groups()]
        return all(_are_equal([content for content in group if content]) for group in groups)


def _are_alike(contents: Sequence[Content]) -> bool:
    try:
        return len({vllm_fingerprint(content.read_file().document) for content in contents}) < 2
    except (OSError, BrokenCacheFile, RecursionError):
        return False


def vllm_fingerprint(document: Mapping[str, Any]) -> tuple[str, int]:
    """Return what vLLM's ranks exchange about their files before any rank loads its own."""
    others = len(document) - (METADATA in document)
    return json.dumps(document.get(METADATA), sort_keys=True), others


def _are_equal(contents: Sequence[Content]) -> bool:
    """Whether contents are equal. Order and white space do not count; an unreadable file equals none."""
    distinct = list({id(content): content for content in contents}.values())
    if len(distinct) < 2:
        return True
    if distinct[0].generation != distinct[1].generation:
        return False
    try:
        first, *others = (content.read_file().document for content in distinct[:2])
        return all(other == first for other in others) and _are_equal(distinct[1:])
    except (OSError, BrokenCacheFile):
        return False


def _entries(document: Mapping[str, Any], layout: str) -> dict[str, Any]:
    if layout != "flashinfer-v2":
        return {key: value for key, value in document.items() if key not in RESERVED}
    value = [document["runner"], document["tactic"]]
    policy = document.get("profiling_policy")
    return {document["key"]: [*value, policy] if isinstance(policy, list) else value}
