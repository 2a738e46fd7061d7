"""What the files of a cache hold: read once, parsed once for all ranks with the same content."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from sgl_tune.cache.layouts import Cache, RankName
from sgl_tune.cache.manifest import BrokenManifest, Manifest, read_manifest
from sgl_tune.cache.record import BrokenCacheFile, Entry, parse_cache_file


@dataclass(frozen=True)
class Content:
    """One distinct content, whatever number of ranks share it."""

    raw: bytes
    entries: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] | None = None
    problem: str | None = None

    @cached_property
    def digest(self) -> str:
        return sha256(self.raw).hexdigest()

    def __iter__(self) -> Iterator[Entry]:
        return (Entry(key, value) for key, value in self.entries.items())


@dataclass(frozen=True, slots=True)
class ScannedFile:
    path: Path
    rank: RankName | None
    bytes: int
    modified: float
    content: Content


@dataclass(frozen=True)
class ScannedCache:
    """`manifest` is ours; `manifest_problem` says why there is one and yet none."""

    cache: Cache
    files: tuple[ScannedFile, ...]
    manifest: Manifest | None
    manifest_problem: str | None
    environment: Mapping[str, Any] | None

    @cached_property
    def contents(self) -> list[Content]:
        """The distinct contents, in the order of the ranks."""
        return list({id(file.content): file.content for file in self.files}.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def age(self) -> float | None:
        """Seconds since the last write."""
        return max(0.0, time.time() - max(f.modified for f in self.files)) if self.files else None

    @cached_property
    def entries(self) -> int:
        """Of one rank; in FlashInfer's managed store every entry is a file of its own."""
        counts = [len(content.entries) for content in self.contents]
        return sum(counts) if self.cache.layout == "flashinfer-v2" else max(counts, default=0)

    @cached_property
    def agree(self) -> bool:
        """Whether every group that a server compares holds the same JSON."""
        by_path = {file.path: file.content for file in self.files}
        return all(
            _are_equal({id(c): c for file in group if (c := by_path.get(file.path))}.values())
            for group in self.cache.groups()
        )


def _are_equal(contents: Collection[Content]) -> bool:
    if len(contents) < 2:
        return True
    try:
        documents = [parse_cache_file(Path(), content.raw).document for content in contents]
    except BrokenCacheFile:
        return False
    return all(document == documents[0] for document in documents)


class Scanner:
    """Reads caches; equal files share one parsed content."""

    def __init__(self) -> None:
        self._contents: dict[bytes, Content] = {}

    def scan(self, cache: Cache) -> ScannedCache:
        manifest, problem = None, None
        if cache.manifest and cache.layout == "sglang":
            try:
                manifest = read_manifest(cache.manifest)
            except BrokenManifest as error:
                problem = error.message
        read = self._read_entry if cache.layout == "flashinfer-v2" else self._read_table
        files = []
        for file in cache.files:
            try:
                raw, status = _slurp(file.path)
            except FileNotFoundError:
                continue  # a server replaced or removed it meanwhile
            except OSError as error:
                broken = Content(b"", problem=f"unreadable ({error.strerror})")
                files.append(ScannedFile(file.path, file.rank, 0, 0.0, broken))
                continue
            content = self._contents.get(raw)
            if content is None:
                content = self._contents[raw] = read(file.path, raw)
            files.append(ScannedFile(file.path, file.rank, status.st_size, status.st_mtime, content))
        return ScannedCache(cache, tuple(files), manifest, problem, _environment(cache, files))

    def _read_table(self, path: Path, raw: bytes) -> Content:
        try:
            file = parse_cache_file(path, raw)
        except BrokenCacheFile as error:
            return Content(raw, problem=error.what)
        environment = file.metadata if isinstance(file.metadata, dict) else None
        return Content(raw, file.entries, environment)

    def _read_entry(self, path: Path, raw: bytes) -> Content:
        """An entry of the managed store: {key, runner, tactic, profiling_policy}; broken ones are misses."""
        try:
            document = parse_cache_file(path, raw).document
            key = document["key"]
            value = [document["runner"], document["tactic"]]
        except BrokenCacheFile as error:
            return Content(raw, problem=error.what)
        except KeyError as error:
            return Content(raw, problem=f"it has no member {error}")
        if not isinstance(key, str):
            return Content(raw, problem="its key is no text")
        policy = document.get("profiling_policy")
        return Content(raw, {key: [*value, policy] if isinstance(policy, list) else value})


def _environment(cache: Cache, files: Sequence[ScannedFile]) -> Mapping[str, Any] | None:
    """Of the first file that says; the managed store says it once for all its entries."""
    if cache.layout != "flashinfer-v2":
        return next((file.content.environment for file in files if file.content.environment), None)
    if cache.manifest is None:
        return None
    try:
        return parse_cache_file(cache.manifest, cache.manifest.read_bytes()).document
    except (OSError, BrokenCacheFile):
        return None


def _slurp(path: Path) -> tuple[bytes, os.stat_result]:
    with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 twice as fast on a thousand files
        return stream.readall(), os.fstat(stream.fileno())
