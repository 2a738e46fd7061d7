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
from sgl_tune.cache.layouts import Cache
from sgl_tune.cache.manifest import BrokenManifest, read_manifest
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy

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
    by_release = _releases_by_key(deployment)
    by_release[deployment.server.key] = ()
    unknown = []
    for cache in others:
        known = by_release.get(str(cache.key))
        known = _by_manifest(deployment, cache) if known is None else known
        if known is None:
            unknown.append(cache)
        else:
            yield Near(cache, (*known, *_flashinfer(deployment, cache)))
    variants = _variants(deployment) if unknown else {}
    for cache in unknown:
        if cache.key in variants:
            yield Near(cache, (*variants[cache.key], *_flashinfer(deployment, cache)))


def _flashinfer(deployment: Deployment, cache: Cache) -> Iterator[str]:
    if cache.flashinfer not in (None, deployment.flashinfer_version):
        yield f"FlashInfer {cache.flashinfer}"


def _releases_by_key(deployment: Deployment) -> dict[str, Words]:
    """The same deployment under each release."""
    keys: dict[str, list[str]] = {}
    for row in RELEASES:
        key = _key(_under(deployment.inputs, row), deployment.server.is_draft)
        if key:
            keys.setdefault(key, []).append(row.version)
    return {key: (_span(versions),) for key, versions in keys.items()}


def _span(versions: Sequence[str]) -> str:
    return f"SGLang {versions[0]}{f' to {versions[-1]}' if len(versions) > 1 else ''}"


def _by_manifest(deployment: Deployment, cache: Cache) -> Words | None:
    parts = _proven_parts(cache)
    if parts is None:
        return None
    mine, fixed = deployment.server.key_parts, len(PART_NAMES)
    named = zip(PART_NAMES, mine, parts, strict=False)
    words = [f"{name} {theirs}" for name, ours, theirs in named if ours != theirs]
    if parts[fixed:] != mine[fixed:]:
        words += _tail(deployment, parts[fixed:])
    return tuple(words) if len(words) <= _FAR else None


def _proven_parts(cache: Cache) -> tuple[str, ...] | None:
    try:
        parts = read_manifest(cache.manifest, cache.root).key_parts if cache.manifest else ()
        return parts if len(parts) >= len(PART_NAMES) and cache_key(parts) == cache.key else None
    except (BrokenManifest, ConfigError):
        return None


def _tail(deployment: Deployment, tail: tuple[str, ...]) -> Iterator[str]:
    """What releases added to the key, by the releases that would add just that."""
    tails = {row.version: _tail_under(deployment, row) for row in RELEASES}
    versions = [version for version, added in tails.items() if added == tail]
    yield _span(versions) if versions else " ".join(tail)


def _tail_under(deployment: Deployment, row: Release) -> tuple[str, ...] | None:
    try:
        server = deploy(_under(deployment.inputs, row)).server
    except ConfigError:
        return None
    server = server.as_draft() if deployment.server.is_draft and server.draft else server
    return server.key_parts[len(PART_NAMES) :]


def _variants(deployment: Deployment) -> dict[str, Words]:
    """Keys of this deployment asked otherwise in one thing, or in one and the release."""
    draft = deployment.server.is_draft
    found: dict[str | None, Words] = {}
    asked = list(_asked_otherwise(deployment.inputs))
    for words, inputs in asked:
        found.setdefault(_key(inputs, draft), words)
    of_other_keys = {key: row for row in RELEASES if (key := _key(_under(deployment.inputs, row), draft))}
    for (words, inputs), row in product(asked, of_other_keys.values()):
        found.setdefault(_key(_under(inputs, row), draft), (*words, f"SGLang {row.version}"))
    return {key: words for key, words in found.items() if key}


def _under(inputs: Inputs, row: Release) -> Inputs:
    return replace(inputs, sglang_version=row.version)


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


def _key(inputs: Inputs, draft: bool) -> str | None:
    """None where SGLang refuses to be asked so, or would make no cache."""
    try:
        server = deploy(inputs).server
    except ConfigError:
        return None
    worker = server.draft if draft else server
    return worker.key if worker and worker.tunes else None
