"""The GPU a report is for: what torch can use of it, and what its driver says, which SGLang goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.server.gpus import GPUS, GpuModel, find_gpu
from runtime.server.units import GIB, MIB
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import UsageError
from sgl_tune.units import parse_size

# Where nobody published torch's own figure: what it is of the driver's on an H200.
_USABLE = 150_109_880_320 / (143_771 * MIB)
_USUAL_ARCH = "sm90"
_USUAL = {"sm80": "A100 80GB", "sm89": "L40S", "sm90": "H200", "sm100": "B200", "sm103": "B300"}


@dataclass(frozen=True, slots=True)
class TargetGpu:
    name: str
    total_bytes: int
    driver_mib: int
    arch: str
    note: str
    preset: str | None = None  # its name among the known GPUs


def target_gpu(name: str | None, memory: str | None, arch: str | None, here: Sequence[Gpu] = ()) -> TargetGpu:
    """The GPU that was asked for, else the one of this machine, else the usual one of the architecture."""
    if memory is not None:
        return _of_size(name, memory, arch)
    if name is not None:
        return _known(find_gpu(name.replace("-", " ")))
    if here:
        return _local(here[0])
    gpu = _known(find_gpu(_USUAL.get(arch or "", _USUAL[_USUAL_ARCH])))
    return replace(gpu, note="assumed: no --gpu, and none here")


def _of_size(name: str | None, memory: str, arch: str | None) -> TargetGpu:
    total = parse_size(memory)
    if total < GIB:
        raise UsageError(f"--gpu-memory {memory} is less than a server needs", "write it as 178.35GiB")
    known = find_gpu(name.replace("-", " ")) if name else None
    return TargetGpu(
        name=known.name if known else f"GPU of {total / GIB:.2f} GiB",
        total_bytes=total,
        driver_mib=known.memory_mib if known else total // MIB,
        arch=arch or (known.arch if known else _USUAL_ARCH),
        note="--gpu-memory",
        preset=known.name if known else None,
    )


def _known(gpu: GpuModel) -> TargetGpu:
    total = gpu.cuda_bytes or int(gpu.memory_mib * MIB * _USABLE)
    return TargetGpu(gpu.name, total, gpu.memory_mib, gpu.arch, gpu.source, gpu.name)


def _local(gpu: Gpu) -> TargetGpu:
    alike = next((model for model in GPUS if model.memory_mib == gpu.mib), None)
    total = (alike.cuda_bytes if alike else None) or int(gpu.mib * MIB * _USABLE)
    name = gpu.name.removeprefix("NVIDIA ")
    return TargetGpu(name, total, gpu.mib, gpu.arch, "the GPU of this machine")
