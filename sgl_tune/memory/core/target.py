"""The GPU a report is for: what torch can use of it, and what its driver says, which SGLang goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.server.gpus import CPU, USUAL, Chosen, GpuModel, gpu_for
from runtime.server.units import GIB, MIB
from sgl_tune.deployment.versions import Gpu, local_model
from sgl_tune.errors import UsageError
from sgl_tune.units import parse_size

_MOST_BYTES = 16 << 40


def target_gpu(name: str | None, memory: str | None, arch: str | None, here: Sequence[Gpu] = ()) -> Chosen:
    """The one that all commands choose, unless its memory is given."""
    if arch == CPU.arch:
        raise UsageError("--gpu cpu has no GPU memory to report", "name the GPU: --gpu h200")
    if memory is not None:
        return Chosen(_of_size(name, memory, arch))
    return gpu_for(name, arch, [local_model(gpu) for gpu in here])


def _of_size(name: str | None, memory: str, arch: str | None) -> GpuModel:
    total = parse_size(memory, "--gpu-memory")
    if total < GIB:
        raise UsageError(f"--gpu-memory {memory} is less than a server needs", "write it as 178.35GiB")
    if total > _MOST_BYTES:
        raise UsageError(
            f"--gpu-memory {memory} is more than {_MOST_BYTES >> 40} TiB, the most that is followed here",
            "write it as 178.35GiB",
        )
    if name is not None:
        return replace(gpu_for(name, arch).gpu, cuda_bytes=total, source="--gpu-memory")
    return GpuModel(f"GPU of {total / GIB:.2f} GiB", arch or USUAL.arch, total // MIB, total, "--gpu-memory")
