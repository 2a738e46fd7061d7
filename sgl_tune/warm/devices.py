"""Which devices of this machine search, and whether what they find is what the target looks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec

from runtime.server.bounds import is_number
from runtime.server.gpus import CPU
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.versions import Gpu, installed_version
from sgl_tune.errors import UsageError

ALL_GPUS = "all"


class DeviceKind(str, Enum):
    auto = "auto"
    cuda = "cuda"
    cpu = "cpu"


@dataclass(frozen=True, slots=True)
class Devices:
    kind: str
    gpus: tuple[int, ...]
    workers: int

    def __str__(self) -> str:
        if self.kind == "cpu":
            return f"{self.workers} worker{'s' * (self.workers > 1)} on the CPU"
        return f"{self.workers} worker{'s' * (self.workers > 1)} on GPU {', '.join(map(str, self.gpus))}"


def choose_devices(kind: DeviceKind, gpus: str, workers: int | None, here: tuple[Gpu, ...]) -> Devices:
    if gpus != ALL_GPUS and (kind is DeviceKind.cpu or not here):
        why = "--device cpu uses none" if kind is DeviceKind.cpu else "no GPU driver answers here"
        raise UsageError(f"--gpus {gpus}: {why}", "leave it out to tune on the CPU")
    if kind is DeviceKind.cpu or (kind is DeviceKind.auto and not here):
        return Devices("cpu", (), workers or 1)
    if not here:
        raise UsageError("--device cuda: no GPU driver answers here", "--device cpu tunes the CPU's kernels")
    if workers is not None:
        raise UsageError(
            "--workers is for the CPU: on GPUs there is one worker each", "choose them with --gpus"
        )
    chosen = tuple(range(len(here))) if gpus == ALL_GPUS else _listed(gpus, len(here))
    return Devices("cuda", chosen, len(chosen))


def _listed(gpus: str, count: int) -> tuple[int, ...]:
    parts = gpus.split(",")
    if not all(is_number(part) and int(part) < count for part in parts) or len(set(parts)) < len(parts):
        raise UsageError(
            f"--gpus {gpus}: not a list of this machine's GPUs", f"all, or some of 0..{count - 1}"
        )
    return tuple(map(int, parts))


def check_target(deployment: Deployment, devices: Devices, here: tuple[Gpu, ...]) -> None:
    """A cache is tuned by the FlashInfer and on the GPU that will read it, or not at all."""
    if find_spec("torch") is None or installed_version("flashinfer") is None:
        raise UsageError("tuning needs torch and FlashInfer", "pip install 'sgl-tune[runtime]'")
    installed = installed_version("flashinfer")
    if installed != deployment.flashinfer_version:
        raise UsageError(
            f"the target reads caches of FlashInfer {deployment.flashinfer_version}, here is {installed}",
            f"--flashinfer-version {installed}, or install the target's version here",
        )
    arch = CPU.arch if devices.kind == "cpu" else here[devices.gpus[0]].arch
    if arch != deployment.arch:
        raise UsageError(
            f"the target is {deployment.arch}, the devices here are {arch}",
            f"tune on a machine of its kind; --arch {arch} plans for this one",
        )
