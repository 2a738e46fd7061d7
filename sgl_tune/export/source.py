"""What is exported: a cache's entries as its own server would load them, one table per pipeline stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import FlashInfer, flashinfer_of
from sgl_tune.cache.folder import read_below
from sgl_tune.cache.layouts.cache import Cache, RankFile
from sgl_tune.cache.loader import Ignored, Loaded, could_be_tactic, is_written, load_document
from sgl_tune.cache.record import BrokenCacheFile, CacheFile, parse_cache_file
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.reading import DEEPEST, is_deeper
from sgl_tune.units import shown

_VERIFY = "`sgl-tune verify` says what is wrong with it"


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage's entries. `environment`: the fields that FlashInfer compares, and no others."""

    number: int
    tp_ranks: int
    replicas: int
    environment: Mapping[str, str]
    entries: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    stages: tuple[Stage, ...]

    @property
    def environment(self) -> Mapping[str, str]:
        return self.stages[0].environment

    @property
    def flashinfer(self) -> str:
        return self.environment["flashinfer_version"]

    @property
    def ways(self) -> FlashInfer:
        return flashinfer_of(self.flashinfer)

    def entries(self) -> dict[str, Any]:
        """Return the entries of all stages together."""
        found: dict[str, Any] = {}
        for stage in self.stages:
            for key, value in stage.entries.items():
                if found.setdefault(key, value) != value:
                    raise CheckFailed(
                        f"{self.path}: its pipeline stages chose differently at {key}; a store serves all",
                        "warm it again: stages of the same shapes share their choices",
                    )
        return found


def the_one(caches: Sequence[Cache], target: str | None) -> Cache:
    with_files = [cache for cache in caches if cache.files]
    if len(with_files) == 1:
        return with_files[0]
    what = f"{len(with_files)} caches are there" if with_files else "no cache file is there"
    raise UsageError(
        f"{target or 'the cache directory'}: {what}, but only one can be exported", "name its key or folder"
    )


def read_source(cache: Cache) -> Source:
    if cache.layout == "flashinfer-v2":
        why = f"{cache.path}: is FlashInfer's managed store already"
        raise UsageError(why, "any FlashInfer of its environment reads it")
    groups = cache.groups() or [(file,) for file in cache.files]
    if not cache.groups() and len(groups) > 1:
        raise UsageError(f"{cache.path}: its files name no ranks of SGLang's", "name one of the files")
    by_stage: dict[int, list[tuple[RankFile, ...]]] = {}
    for group in groups:
        by_stage.setdefault(group[0].rank.pp if group[0].rank else 0, []).append(group)
    stages = [_stage(number, by_stage[number], cache) for number in sorted(by_stage)]
    if any(stage.environment != stages[0].environment for stage in stages):
        raise CheckFailed(f"{cache.path}: its pipeline stages were tuned in different environments", _VERIFY)
    return Source(cache.path, tuple(stages))


def _stage(number: int, replicas: Sequence[Sequence[RankFile]], cache: Cache) -> Stage:
    files = [_read(file.path, cache.root) for group in replicas for file in group]
    for file in files:
        if file.document != files[0].document:
            raise CheckFailed(f"{file.path}: differs from {files[0].path.name}, a rank of its stage", _VERIFY)
    environment = _environment(files[0])
    ways = flashinfer_of(environment["flashinfer_version"])
    outcome = load_document(files[0].document, environment, ways)
    if not isinstance(outcome, Loaded):
        why = (
            "its own server ignores it"
            if isinstance(outcome, Ignored)
            else f"a server dies of it: {outcome.reason}"
        )
        raise CheckFailed(f"{files[0].path}: {why}", _VERIFY)
    entries = {key: value for key, value in files[0].entries_for(ways).items() if key in outcome.entries}
    for key, value in entries.items():
        if not _is_whole(value):
            raise CheckFailed(
                f"{files[0].path}: the value of {shown(key)} is not [runner, tactic, policy]", _VERIFY
            )
        if not could_be_tactic(outcome.entries[key][1]):
            raise CheckFailed(f"{files[0].path}: {shown(key)} has a tactic that no kernel can take", _VERIFY)
    if not entries:
        raise CheckFailed(f"{files[0].path}: holds no entry", "warm it first")
    return Stage(number, len(replicas[0]), len(replicas), environment, entries)


def _is_whole(value: Any) -> bool:
    """Whether FlashInfer's loader, which reads by position, gets a complete entry."""
    return (
        is_written(value)
        and isinstance(value[0], str)
        and all(isinstance(policy, list) for policy in value[2:3])
        and not is_deeper(value, DEEPEST)
    )


def _read(path: Path, root: Path | None) -> CacheFile:
    try:
        return parse_cache_file(path, read_below(path, root))
    except BrokenCacheFile as error:
        raise CheckFailed(f"{path}: {error.what}", _VERIFY) from None


def _environment(file: CacheFile) -> dict[str, str]:
    saved = file.metadata if isinstance(file.metadata, dict) else {}
    names = flashinfer_of(str(saved.get("flashinfer_version"))).environment
    told = {name: saved.get(name) for name in names}
    for name, value in told.items():
        if not isinstance(value, str) or value == "*":
            said = "says nothing" if value is None else f"says {value!r}"
            raise CheckFailed(
                f"{file.path}: of {name} it {said}, so its machine is not known",
                "warm it again on a machine where that is known",
            )
    return {name: str(value) for name, value in told.items()}
