"""What the files of a cache hold, as a pass over the disk found it: it keeps little, for caches come by the
thousand."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.flashinfer.versions import METADATA
from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.layouts.readers import ONE_FILE
from sgl_tune.cache.rank_names import RankName
from sgl_tune.cache.record import RESERVED, BrokenCacheFile, CacheFile, Entry, parse_cache_file

if TYPE_CHECKING:
    from sgl_tune.cache.manifest import Manifest


class Content(NamedTuple):
    """One distinct content, whatever number of ranks share it. Its entries are read again when asked for:
    to hold on to all of them while listing takes longer than to parse them."""

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
            return []  # it was there and fine a moment ago: somebody is writing, and will be done
        return [Entry(key, value) for key, value in _entries(document, self.layout).items()]


class ScannedFile(NamedTuple):
    path: Path
    rank: RankName | None
    bytes: int
    modified: float | None
    content: Content
    digest: str | None = None


class ScannedCache(NamedTuple):
    """`manifest` is ours; `manifest_problem` says why there is one and yet none."""

    cache: Cache
    files: tuple[ScannedFile, ...]
    manifest: Manifest | None
    manifest_problem: str | None
    environment: Mapping[str, Any] | None

    @property
    def contents(self) -> list[Content]:
        """The distinct contents, in the order of the ranks."""
        return list({id(file.content): file.content for file in self.files}.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def age(self) -> float | None:
        """Seconds since the last write."""
        times = [file.modified for file in self.files if file.modified is not None]
        return max(0.0, time.time() - max(times)) if times else None

    @property
    def entries(self) -> int:
        """Of one rank; in FlashInfer's managed store every entry is a file of its own."""
        counts = [content.entries for content in self.contents]
        return sum(counts) if self.cache.layout == "flashinfer-v2" else max(counts, default=0)

    @property
    def is_foreign(self) -> bool:
        """One file in no layout that nothing marks as a cache: some other text, or some other JSON."""
        if self.cache.layout != "files" or len(self.files) != 1:
            return False
        path, content = self.files[0].path, self.files[0].content
        if content.problem:
            return path.suffix != ".json"
        marked = content.environment is not None or content.generation is not None
        return content.entries > 0 and not marked and not any(e.parts for e in content.read_entries())

    @property
    def agree(self) -> bool:
        """Whether every group that a server compares is equal to it: the same JSON, but for vLLM."""
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
    """What vLLM's ranks tell each other of their files, before any of them loads its own."""
    others = len(document) - (METADATA in document)
    return json.dumps(document.get(METADATA), sort_keys=True), others


def _are_equal(contents: Sequence[Content]) -> bool:
    """Order and white space do not count; a file that cannot be read equals none."""
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
