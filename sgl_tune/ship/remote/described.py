"""Which machine a bundle is for, and what a registry is told about it."""

import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.server.gpus import GpuModel, find_gpu
from sgl_tune.deployment.versions import local_gpus, may_be
from sgl_tune.errors import SglTuneError, UsageError
from sgl_tune.ship.archive import opened
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.remote.registry_image import ARCH, BYTES, GPU, KEYS, MODELS, OURS, PLATFORM, is_platform
from sgl_tune.ship.remote.remotes import Machine
from sgl_tune.verify.environment import read_target

Progress = Callable[[str, int, int], None]
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Described:
    """What a registry is told about a bundle. `told`: annotations by which `pull` chooses. `labels`: the
    image's."""

    digest: str
    diff_id: str
    bytes: int
    platform: str
    told: Mapping[str, str]
    labels: Mapping[str, str]


def described(bundle: Path, machine: Machine, progress: Progress) -> Described:
    """Read the bundle to its end, so that nothing is pushed that a pull would refuse, and describe it."""
    with opened(bundle, with_diff_id=True) as found:
        done, total = 0, found.archive.manifest.bytes
        for _, content in found.archive.each():
            for piece in content:
                done += len(piece)
                progress("checked", done, total)
        size, manifest = found.archive.compressed, found.archive.manifest
        told = {OURS: found.digest, BYTES: str(size), **_told(manifest, machine)}
        labels = {**told, **_labels(manifest)}
        return Described(found.digest, found.diff_id, size, machine.platform or platform_here(), told, labels)


def _told(manifest: BundleManifest, machine: Machine) -> dict[str, str]:
    told = {
        GPU: machine.gpu,
        ARCH: machine.arch,
        PLATFORM: machine.platform,
        KEYS: _joined(sorted(manifest.keys)),
        MODELS: _joined(cache.key_parts[0] for cache in manifest.caches if cache.key_parts),
        "sgl-tune.sglang": _joined(cache.sglang for cache in manifest.caches),
        "sgl-tune.flashinfer": _joined(cache.flashinfer for cache in manifest.caches),
        "sgl-tune.stores": _joined(store.store for store in manifest.stores),
        "sgl-tune.code": "yes" if manifest.has_code else "no",
        "sgl-tune.contents": manifest.digest,
        "sgl-tune.tool": manifest.tool,
    }
    return {name: value for name, value in told.items() if value}


def _joined(words: Iterable[str | None]) -> str:
    return ",".join(dict.fromkeys(filter(None, words)))


def _labels(manifest: BundleManifest) -> dict[str, str]:
    return {
        "sgl-tune.files": str(len(manifest.files)),
        "sgl-tune.unpacked-bytes": str(manifest.bytes),
        "sgl-tune.tactics": str(sum(cache.entries for cache in manifest.caches)),
        **{f"sgl-tune.items.{store.store}": str(store.items) for store in manifest.stores},
        "sgl-tune.at": manifest.at,
        **_of_kernels(manifest),
    }


def _of_kernels(manifest: BundleManifest) -> dict[str, str]:
    """Return the labels by which MCV, GKM and KServe list an image of Triton's kernels."""
    store = next((one for one in manifest.stores if one.store == "triton"), None)
    if store is None:
        return {}
    archs = [arch.removeprefix("sm") for arch in store.archs]
    targets = [{"backend": "cuda", "arch": arch, "warp_size": 32} for arch in archs]
    told = {"entry-count": store.items, "cache-size-bytes": store.bytes, "summary": {"targets": targets}}
    texts = {name: json.dumps(value) for name, value in told.items()}
    return {
        **{f"cache.triton.image/{name}": text for name, text in texts.items()},
        **{f"model.cache.image/{name}": text for name, text in texts.items()},
        "model.cache.image/type": "triton",
        "io.kserve.km/framework": "sglang",
        "io.kserve.km/cache-type": "triton",
        "io.kserve.km/cache-root-env": f"SGLANG_CACHE_DIR={manifest.at}",
    }


def machine_for(target: Path | None, gpu: str | None, processor: str | None) -> Machine:
    if target and gpu:
        raise UsageError("--target and --gpu both name a machine", "give one")
    there = _platform(processor)
    if target:
        told = read_target(target)
        return Machine(told.gpu_name, told.arch, there)
    if gpu:
        row = find_gpu(gpu)
        return Machine(row.name, row.arch, there)
    here = local_gpus()
    return Machine(here[0].name, here[0].arch, there) if here else Machine(platform=there)


def machine_of(bundle: Path, gpu: str | None, processor: str | None) -> Machine:
    """Return the machine a bundle is for, by its files, else by the options. Tactics fit any processor."""
    manifest = _manifest(bundle)
    named = find_gpu(gpu) if gpu else None
    if gpu and manifest.gpus and not any(may_be(one, gpu) for one in manifest.gpus):
        raise UsageError(f"--gpu {gpu}: {bundle} is for {', '.join(manifest.gpus)}", "leave --gpu out")
    there = _platform(processor) if processor or manifest.has_code else None
    return replace(_tuned_on(manifest, named), platform=there)


def offered(bundle: Path) -> tuple[Machine, dict[str, str]]:
    """Return the machine of a file, and what it tells `pull`; nothing if the file is no bundle."""
    try:
        manifest = _manifest(bundle)
    except SglTuneError:
        return Machine(), {}
    machine = _tuned_on(manifest, None)
    return machine, _told(manifest, machine)


def _manifest(bundle: Path) -> BundleManifest:
    with opened(bundle) as found:
        return found.archive.manifest


def _tuned_on(manifest: BundleManifest, named: GpuModel | None) -> Machine:
    archs = {cache.arch for cache in manifest.caches} or set(manifest.archs)
    arch = archs.pop() if len(archs) == 1 else named.arch if named else None
    return Machine(manifest.gpus[0] if len(manifest.gpus) == 1 else named.name if named else None, arch)


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
