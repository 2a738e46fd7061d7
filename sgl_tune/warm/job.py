"""What a launcher sends to its workers and to the proof: the calls to make, and where results go."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.record.calls import Call
from runtime.record.checked import from_plain, to_plain
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import ParallelConfig

if TYPE_CHECKING:
    from runtime.devices.base import Device
    from sgl_tune.cache.asked import CachePlan
    from sgl_tune.deployment.deployment import Deployment
    from sgl_tune.keys.plan import Plan


@dataclass(frozen=True, slots=True)
class CacheJob:
    """A cache of the core. `tuning_rows`, `serving_rows`: rows of the forwards that look up all its
    `keys`."""

    model: ModelConfig
    parallel: ParallelConfig
    runtime: RuntimeConfig
    skip_ops: tuple[str, ...]
    files: tuple[Path, ...]
    keys: tuple[str, ...]
    tuning_rows: tuple[int, ...]
    serving_rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallCache:
    """A recorded cache: its files on this node, and the recorded calls that look up all its entries."""

    calls: tuple[Call, ...]
    files: tuple[Path, ...]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key for call in self.calls for key in call.keys)


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one warm. `folder`: private to it; FlashInfer loads and saves intermediate files there."""

    folder: Path
    caches: tuple[CacheJob | CallCache, ...]
    device: str
    gpus: tuple[int, ...]
    replacing: bool = False

    def to_json(self) -> dict[str, Any]:
        return to_plain(self)


def read_job(data: Any) -> Job:
    return from_plain(Job, data, "job")


def tuned_path(folder: Path, cache: int) -> Path:
    """Return the file that FlashInfer's saver writes after every op and at the end of a search."""
    return folder / f"tuned.{cache}.json"


def make_job(plan: Plan, folder: Path, device: str, gpus: tuple[int, ...], replacing: bool = False) -> Job:
    whose = filter(None, (plan.deployment, plan.deployment.draft_deployment))
    return Job(folder, tuple(map(_cache_job, whose, plan.caches)), device, gpus, replacing)


def _cache_job(deployment: Deployment, cache: CachePlan) -> CacheJob:
    return CacheJob(
        model=deployment.model,
        parallel=deployment.parallel,
        runtime=deployment.runtime,
        skip_ops=deployment.server.asked.flashinfer_autotune_skip_ops,
        files=tuple(deployment.cache_dir / path for path in cache.paths),
        keys=tuple(dict.fromkeys(key for op in cache.ops for key in op.keys)),
        # One call at an op's largest bucket looks up all of its buckets.
        tuning_rows=tuple(sorted({op.buckets[-1] for op in cache.ops}, reverse=True)),
        serving_rows=tuple(sorted({bucket for op in cache.ops for bucket in op.buckets}, reverse=True)),
    )


def only_for(device: str) -> None:
    """Keep FlashInfer from importing CuTe DSL on a CPU: it has kernels for GPUs only, and its import takes
    a third of a worker's starting time and 115 MB."""
    if device == "cpu":
        sys.modules.setdefault("cutlass", None)  # type: ignore[arg-type]  # what Python means by: there is none


def make_device(name: str, index: int) -> Device:
    if name == "cuda":
        from runtime.devices.cuda import Cuda

        return Cuda(index)
    from runtime.devices.cpu import Cpu

    return Cpu()
