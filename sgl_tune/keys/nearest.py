"""Of the caches under other keys, the one that comes nearest to a deployment's, and what it was made for.

Only what is proven: the parts in a manifest make the folder's key, or the deployment asked otherwise does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from runtime.server.backends import BACKENDS
from runtime.server.cache_key import PART_NAMES, cache_key
from runtime.server.errors import ConfigError
from runtime.server.gpus import GPUS
from runtime.server.quantization import DTYPES
from runtime.server.releases import RELEASES, Release
from runtime.server.shape import DraftServer, Server
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import BrokenManifest, read_manifest
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy, server_of

_SIZES = (1, 2, 4, 8, 16, 32)
_FAR = 3  # of so many differences it is another deployment's


@dataclass(frozen=True, slots=True)
class Near:
    """`made_for`: what differs, as that cache has it."""

    cache: Cache
    made_for: tuple[str, ...]

    @property
    def says(self) -> str:
        return f"{self.cache.key}: made for {', '.join(self.made_for)}"


Words = tuple[str, ...]
Worker = Server | DraftServer


def nearest(deployment: Deployment, caches: Iterable[Cache]) -> Near | None:
    """Of those with files, under another key. None where none is this deployment's asked otherwise."""
    others = [cache for cache in caches if cache.layout == "sglang" and cache.files and cache.key]
    others = [cache for cache in others if cache.key != deployment.server.key]
    found: list[Near] = []
    for arch in dict.fromkeys(str(cache.arch) for cache in others):
        there, words = _on(arch, deployment)
        mine = [cache for cache in others if cache.arch == arch]
        found += [Near(one.cache, (*one.made_for, *words)) for one in _found(there, mine)] if there else []
    return min(found, key=lambda near: len(near.made_for), default=None)


def _on(arch: str, deployment: Deployment) -> tuple[Deployment | None, Words]:
    """The deployment where a cache's folder says that its server ran."""
    if arch == deployment.arch:
        return deployment, ()
    gpu = next((gpu for gpu in GPUS if gpu.arch == arch), None)
    try:
        there = deploy(replace(deployment.inputs, gpu=gpu)) if gpu else None
    except ConfigError:
        return None, ()
    if there and deployment.server.is_draft:
        there = there.draft_deployment
    return there, (f"a {gpu.name} ({arch})",) if gpu else ()


def _found(deployment: Deployment, others: Sequence[Cache]) -> Iterator[Near]:
    workers = _Workers(deployment)
    by_release = _releases_by_key(workers)
    by_release[deployment.server.key] = ()
    unknown = []
    for cache in others:
        known = by_release.get(str(cache.key))
        known = _by_manifest(workers, cache) if known is None else known
        if known is None:
            unknown.append(cache)
        else:
            yield Near(cache, (*known, *_flashinfer(deployment, cache)))
    variants = _variants(workers, {str(cache.key) for cache in unknown}) if unknown else {}
    for cache in unknown:
        if cache.key in variants:
            yield Near(cache, (*variants[str(cache.key)], *_flashinfer(deployment, cache)))


class _Workers:
    """What makes a key: this deployment's servers, or their drafts, under each release, resolved once."""

    def __init__(self, deployment: Deployment) -> None:
        self.inputs, self.is_draft = deployment.inputs, deployment.server.is_draft
        self.parts = deployment.server.key_parts
        self._under: dict[str, Worker | None] = {}

    def under(self, row: Release) -> Worker | None:
        if row.version not in self._under:
            self._under[row.version] = self.asked(self.inputs, row.version)
        return self._under[row.version]

    def asked(self, inputs: Inputs, version: str) -> Worker | None:
        """None where SGLang refuses to be asked so."""
        try:
            server = server_of(replace(inputs, sglang_version=version))
        except ConfigError:
            return None
        return server.draft if self.is_draft else server

    def distinct(self) -> Iterator[tuple[Release, Worker]]:
        """The newest release of each key."""
        rows = {worker.key: (row, worker) for row in RELEASES if (worker := self.under(row)) and worker.tunes}
        yield from rows.values()


def _flashinfer(deployment: Deployment, cache: Cache) -> Iterator[str]:
    if cache.flashinfer not in (None, deployment.flashinfer_version):
        yield f"FlashInfer {cache.flashinfer}"


def _releases_by_key(workers: _Workers) -> dict[str, Words]:
    """The same deployment under each release."""
    keys: dict[str, list[str]] = {}
    for row in RELEASES:
        worker = workers.under(row)
        if worker and worker.tunes:
            keys.setdefault(worker.key, []).append(row.version)
    return {key: (_span(versions),) for key, versions in keys.items()}


def _span(versions: Sequence[str]) -> str:
    return f"SGLang {versions[0]}{f' to {versions[-1]}' if len(versions) > 1 else ''}"


def _by_manifest(workers: _Workers, cache: Cache) -> Words | None:
    parts = _proven_parts(cache)
    if parts is None:
        return None
    mine, fixed = workers.parts, len(PART_NAMES)
    named = zip(PART_NAMES, mine, parts, strict=False)
    words = [f"{name} {theirs}" for name, ours, theirs in named if ours != theirs]
    if parts[fixed:] != mine[fixed:]:
        words += _tail(workers, parts[fixed:])
    return tuple(words) if len(words) <= _FAR else None


def _proven_parts(cache: Cache) -> tuple[str, ...] | None:
    try:
        parts = read_manifest(cache.manifest, cache.root).key_parts if cache.manifest else ()
        return parts if len(parts) >= len(PART_NAMES) and cache_key(parts) == cache.key else None
    except (BrokenManifest, ConfigError):
        return None


def _tail(workers: _Workers, tail: tuple[str, ...]) -> Iterator[str]:
    """What releases added to the key, by the releases that would add just that."""
    under = {row.version: workers.under(row) for row in RELEASES}
    added = {one: worker.key_parts[len(PART_NAMES) :] for one, worker in under.items() if worker}
    versions = [one for one, its in added.items() if its == tail]
    yield _span(versions) if versions else " ".join(tail)


def _variants(workers: _Workers, keys: set[str]) -> dict[str, Words]:
    """Of these keys, those of this deployment asked otherwise in one thing, or in one and the release."""
    found: dict[str, Words] = {}

    def note(worker: Worker | None, words: Words) -> None:
        if worker and worker.tunes and worker.key in keys:
            found.setdefault(worker.key, words)

    otherwise = dict(_asked_otherwise(workers.inputs))
    here = {words: workers.asked(one, one.sglang_version) for words, one in otherwise.items()}
    for words, worker in here.items():
        note(worker, words)
    for (words, inputs), (row, there) in product(otherwise.items(), workers.distinct()):
        asked = here[words]
        if asked is None or not keys.isdisjoint(_guesses(workers.parts, asked.key_parts, there.key_parts)):
            note(workers.asked(inputs, row.version), (*words, f"SGLang {row.version}"))
    return found


def _guesses(mine: Words, asked: Words, there: Words) -> Iterator[str]:
    """Keys of a server that is asked otherwise under another release, with what either changes, and any MoE
    backend, which they decide together. A key takes a hundredth of the time of a resolved server."""
    fixed, backend = len(PART_NAMES), PART_NAMES.index("MoE backend")
    parts = zip(mine[:fixed], asked, there, strict=False)
    changed = [theirs if other == own else other for own, other, theirs in parts]
    for name in BACKENDS:
        yield cache_key((*changed[:backend], name, *changed[backend + 1 :], *there[fixed:]))


def _asked_otherwise(inputs: Inputs) -> Iterator[tuple[Words, Inputs]]:
    otherwise: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
        ("dtype", "dtype", DTYPES),
        ("tp_size", "tp", _SIZES),
        ("pp_size", "pp", _SIZES),
        ("ep_size", "ep", _SIZES),
        ("quantization", "quantization", ("fp8", "unquant", None)),
        ("moe_runner_backend", "MoE backend", tuple(BACKENDS)),
        ("model_path", "model path", _spellings(inputs.asked.model_path)),
    )
    for name, word, values in otherwise:
        for value in values:
            yield (f"{word} {value}",), replace(inputs, asked=replace(inputs.asked, **{name: value}))


def _spellings(model_path: str) -> tuple[str, ...]:
    return (model_path.rstrip("/"), f"{model_path.rstrip('/')}/", model_path.removeprefix("./"))
