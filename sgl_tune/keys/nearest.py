"""Find the cache under another key that is nearest to a deployment's, and what it was made for. Only what
is proven counts: the parts in a manifest hash to the folder's key, or the key of the deployment with one
change does."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.backends import BACKENDS
from runtime.server.cache_key import PART_NAMES, cache_key
from runtime.server.errors import ConfigError
from runtime.server.gpus import GPUS
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.manifest import BrokenManifest, read_manifest
from sgl_tune.deployment.deployment import Deployment, Inputs, server_of

_SIZES = (1, 2, 4, 8, 16, 32)
_FAR = 3  # with so many differences it is another deployment's cache
Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Near:
    """A near cache. `made_for`: the values that differ, as that cache has them."""

    cache: Cache
    made_for: Words

    @property
    def says(self) -> str:
        return f"{self.cache.key}: made for {', '.join(self.made_for)}"


def nearest(deployment: Deployment, caches: Iterable[Cache]) -> Near | None:
    """Return the nearest cache that has files, or None if no cache is of this deployment with changes."""
    others = [one for one in caches if one.layout == "sglang" and one.files and one.key]
    others = [one for one in others if one.key != deployment.server.tuning.key]
    asked_otherwise: dict[str, dict[str, Words]] = {}
    found = []
    for cache in others:
        known = _by_manifest(deployment, cache)
        if known is None:
            arch = str(cache.arch)
            if arch not in asked_otherwise:
                asked_otherwise[arch] = _variants(deployment, arch)
            known = asked_otherwise[arch].get(str(cache.key))
        if known is not None:
            found.append(Near(cache, (*known, *_beside(deployment, cache))))
    return min(found, key=lambda near: len(near.made_for), default=None)


def _beside(deployment: Deployment, cache: Cache) -> Iterator[str]:
    """Yield the differences in a folder's path that are not in its key."""
    if cache.flashinfer not in (None, deployment.inputs.flashinfer_version):
        yield f"FlashInfer {cache.flashinfer}"
    if cache.arch not in (None, deployment.arch):
        gpu = next((gpu.name for gpu in GPUS if gpu.arch == cache.arch), None)
        yield f"a {gpu} ({cache.arch})" if gpu else str(cache.arch)


def _by_manifest(deployment: Deployment, cache: Cache) -> Words | None:
    """Return the differences by the key parts in the manifest, if they hash to the folder's key."""
    try:
        parts = read_manifest(cache.manifest, cache.root).key_parts if cache.manifest else ()
        if len(parts) < len(PART_NAMES) or cache_key(parts) != cache.key:
            return None
    except (BrokenManifest, ConfigError):
        return None
    mine, fixed = deployment.server.tuning.key_parts, len(PART_NAMES)
    named = zip(PART_NAMES, mine, parts, strict=False)
    words = [f"{name} {theirs}" for name, ours, theirs in named if ours != theirs]
    words += [" ".join(parts[fixed:])] if parts[fixed:] != mine[fixed:] else []
    return tuple(words) if words and len(words) <= _FAR else None


def _variants(deployment: Deployment, arch: str) -> dict[str, Words]:
    """Return the keys of this deployment on this GPU, with one argument changed or none."""
    gpu = next((gpu for gpu in GPUS if gpu.arch == arch), None)
    here = (
        deployment.inputs if arch == deployment.arch else replace(deployment.inputs, gpu=gpu) if gpu else None
    )
    found: dict[str, Words] = {}
    for words, inputs in _asked_otherwise(here) if here else ():
        try:
            server = server_of(inputs)
        except ConfigError:  # SGLang refuses these arguments
            continue
        worker = server.draft if deployment.server.is_draft else server.tuning
        if worker is not None and worker.tunes:
            found.setdefault(worker.key, words)
    return found


def _asked_otherwise(inputs: Inputs) -> Iterator[tuple[Words, Inputs]]:
    path = inputs.asked.model_path
    yield (), inputs
    otherwise: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
        ("dtype", "dtype", ("bfloat16", "float16")),
        ("tp_size", "tp", _SIZES),
        ("pp_size", "pp", _SIZES),
        ("ep_size", "ep", _SIZES),
        ("quantization", "quantization", ("fp8", None)),
        ("moe_runner_backend", "MoE backend", tuple(BACKENDS)),
        ("model_path", "model path", (path.rstrip("/"), f"{path.rstrip('/')}/", path.removeprefix("./"))),
    )
    for name, word, values in otherwise:
        for value in values:
            try:
                yield (f"{word} {value}",), replace(inputs, asked=replace(inputs.asked, **{name: value}))
            except ConfigError:
                continue
