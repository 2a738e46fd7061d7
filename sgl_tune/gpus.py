"""GPUs that a plan or a prediction can be made for without having one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sgl_tune.errors import UsageError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuModel:
    """`memory_mib` as nvidia-smi says; `cuda_bytes`, what a process can have, where somebody published it."""

    name: str
    arch: str
    memory_mib: int
    cuda_bytes: int | None
    source: str

    @property
    def usable_bytes(self) -> int:
        return self.cuda_bytes or self.memory_mib * _MIB


@cache
def gpu_models() -> tuple[GpuModel, ...]:
    rows = json.loads((Path(__file__).parent / "presets" / "gpus.json").read_text())
    return tuple(GpuModel(**row) for row in rows)


def find_gpu(name: str) -> GpuModel:
    """By name in any case, with or without `NVIDIA`, as it is typed or as a driver reports it."""
    wanted = name.lower().removeprefix("nvidia").strip()
    exact = [gpu for gpu in gpu_models() if gpu.name.lower() == wanted]
    reported = [gpu for gpu in gpu_models() if wanted.startswith(gpu.name.lower() + " ")]
    found = exact or sorted(reported, key=lambda gpu: -len(gpu.name))
    if not found:
        names = ", ".join(gpu.name for gpu in gpu_models())
        raise UsageError(f"no GPU named {name!r} is known", f"one of {names}")
    return found[0]


def largest_gpu(arch: str) -> GpuModel | None:
    """The one with the most memory, and so with the largest default batches, of an architecture."""
    return max(
        (gpu for gpu in gpu_models() if gpu.arch == arch), key=lambda gpu: gpu.memory_mib, default=None
    )
