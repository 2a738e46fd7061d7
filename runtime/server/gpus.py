"""GPUs that a plan or a prediction can be made for without having one."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.errors import ConfigError
from runtime.server.units import MIB


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
        return self.cuda_bytes or self.memory_mib * MIB


_LOGS = "nvidia-smi, published logs"
_OOM = "nvidia-smi and torch's out-of-memory messages ({}), published logs"
GPUS = (
    GpuModel("H200", "sm90", 143771, 150109880320, "nvidia-smi and cudaMemGetInfo, measured on one H200"),
    GpuModel(
        "H100",
        "sm90",
        81559,
        84943715041,
        _OOM.format("79.11 GiB"),
    ),
    GpuModel("H100 NVL", "sm90", 95830, None, _LOGS),
    GpuModel("H20", "sm90", 97871, None, _LOGS),
    GpuModel(
        "B200",
        "sm100",
        183359,
        191501854310,
        _OOM.format("178.35 GiB"),
    ),
    GpuModel("GB200", "sm100", 189471, None, _LOGS),
    GpuModel("B300", "sm103", 275040, None, _LOGS),
    GpuModel("GB300", "sm103", 284208, None, _LOGS),
    GpuModel(
        "A100 80GB",
        "sm80",
        81920,
        85094039552,
        _OOM.format("79.25 GiB"),
    ),
    GpuModel("A100 40GB", "sm80", 40960, None, _LOGS),
    GpuModel("L40S", "sm89", 46068, None, _LOGS),
    GpuModel("L4", "sm89", 23034, None, _LOGS),
    GpuModel("RTX 4090", "sm89", 24564, None, _LOGS),
    GpuModel("RTX PRO 6000", "sm120", 97887, None, _LOGS),
    GpuModel("RTX 5090", "sm120", 32607, None, _LOGS),
)


def find_gpu(name: str) -> GpuModel:
    """By name in any case, with or without `NVIDIA`, as it is typed or as a driver reports it."""
    wanted = name.lower().removeprefix("nvidia").strip()
    exact = [gpu for gpu in GPUS if gpu.name.lower() == wanted]
    reported = [gpu for gpu in GPUS if wanted.startswith(gpu.name.lower() + " ")]
    found = exact or sorted(reported, key=lambda gpu: -len(gpu.name))
    if not found:
        names = ", ".join(gpu.name for gpu in GPUS)
        raise ConfigError(f"no GPU named {name!r} is known", f"one of {names}")
    return found[0]


def largest_gpu(arch: str) -> GpuModel | None:
    """The one with the most memory, and so with the largest default batches, of an architecture."""
    return max((gpu for gpu in GPUS if gpu.arch == arch), key=lambda gpu: gpu.memory_mib, default=None)
