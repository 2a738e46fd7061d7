"""For which machine a bundle is wanted: one that was named, described, or this one."""

from __future__ import annotations

import platform
from pathlib import Path

from runtime.server.gpus import find_gpu
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.ship.archive import opened
from sgl_tune.ship.registry_image import is_platform
from sgl_tune.ship.remotes import Machine
from sgl_tune.verify.environment import may_be, read_target

_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


def machine_for(target: Path | None, gpu: str | None, processor: str | None) -> Machine:
    if target and gpu:
        raise UsageError("--target and --gpu both name a machine", "give one")
    there = _platform(processor)
    if target:
        told = read_target(target)
        return Machine((told.metadata or {}).get("gpu"), told.arch, there)
    if gpu:
        row = find_gpu(gpu)
        return Machine(row.name, row.arch, there)
    here = local_gpus()
    return Machine(here[0].name, here[0].arch, there) if here else Machine(platform=there)


def machine_of(bundle: Path, gpu: str | None, processor: str | None) -> Machine:
    """Whom a bundle is for, as its files say it; where they do not, as it is said. Tactics are for any
    processor."""
    with opened(bundle) as found:
        manifest = found.archive.manifest
    named = find_gpu(gpu) if gpu else None
    if gpu and manifest.gpus and not any(may_be(one, gpu) for one in manifest.gpus):
        raise UsageError(f"--gpu {gpu}: {bundle} is for {', '.join(manifest.gpus)}", "leave --gpu out")
    archs = {cache.arch for cache in manifest.caches} or set(manifest.archs)
    arch = archs.pop() if len(archs) == 1 else named.arch if named else None
    only = manifest.gpus[0] if len(manifest.gpus) == 1 else named.name if named else None
    return Machine(only, arch, _platform(processor) if processor or manifest.has_code else None)


def platform_here() -> str:
    processor = platform.machine()
    here = f"linux/{_PROCESSORS.get(processor, processor)}"
    return here if is_platform(here) else "linux/amd64"


def _platform(named: str | None) -> str:
    if named is None:
        return platform_here()
    if not is_platform(named):
        raise UsageError(f"--platform {named} is no platform", "linux/amd64, linux/arm64")
    return named
