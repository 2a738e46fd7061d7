"""What the files of a cache hold, in a pass over the disk that keeps little: caches come by the thousand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.cache.folder import Slurped, Way, read_below, reader
from sgl_tune.cache.layouts import Cache, RankFile
from sgl_tune.cache.layouts.find import resolve
from sgl_tune.cache.layouts.listing import OnError
from sgl_tune.cache.record import BrokenCacheFile, parse_cache_file, sha256_of
from sgl_tune.cache.scanned import Content, ScannedCache, ScannedFile

if TYPE_CHECKING:
    from sgl_tune.cache.manifest import Manifest

_RECENT = 16
_CLUE = 96


class Scanner:
    """Reads caches; equal files share one content, parsed once."""

    def __init__(self, digests: bool = False) -> None:
        self._digests = digests
        self._recent: dict[object, tuple[bytes, Content, str | None]] = {}

    def resolve(
        self, target: str | None, cache_dir: Path, on_error: OnError, skip: Collection[Path] = ()
    ) -> list[ScannedCache]:
        """What a user meant, found and read."""
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
                with suppress(FileNotFoundError):  # a server replaced or removed it meanwhile
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
        """Found by the end of the file, where FlashInfer writes its checksum, and then compared in full:
        to hash every byte of every file would cost a fifth of the parsing."""
        clue = (cache.layout, len(raw), raw[-_CLUE:])
        known = self._recent.get(clue)
        if known is None or known[0] != raw:
            digest = sha256_of(raw) if self._digests else None
            known = self._recent[clue] = (
                raw,
                _parse(path, cache.layout, raw)._replace(root=cache.root),
                digest,
            )
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
        return known[1], known[2]


def _unreadable(file: RankFile, cache: Cache, error: OSError) -> ScannedFile:
    broken = Content(file.path, cache.layout, problem=f"unreadable ({error.strerror})", root=cache.root)
    return ScannedFile(file.path, file.rank, 0, None, broken)


def _parse(path: Path, layout: str, raw: bytes) -> Content:
    is_entry = layout == "flashinfer-v2"
    try:
        file = parse_cache_file(path, raw)
    except BrokenCacheFile as error:
        return Content(path, layout, problem=error.what)
    if is_entry:
        problem = _entry_problem(file.document)
        return Content(path, layout, entries=0 if problem else 1, problem=problem)
    environment = file.metadata if isinstance(file.metadata, dict) else None
    return Content(path, layout, file.count, environment, file.generation)


def _entry_problem(document: Mapping[str, Any]) -> str | None:
    """Of an entry of the managed store, {key, runner, tactic, profiling_policy}; FlashInfer skips such."""
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
    """Of the first file that says; the managed store says it once for all its entries."""
    if cache.layout != "flashinfer-v2":
        return next((file.content.environment for file in files if file.content.environment), None)
    if cache.manifest is None:
        return None
    try:
        return parse_cache_file(cache.manifest, read_below(cache.manifest, cache.root)).document
    except (OSError, BrokenCacheFile):
        return None
