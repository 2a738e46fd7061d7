"""Choose the devices that search, and check that the target will use what they find."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.server.gpus import CPU
from sgl_tune.deployment.versions import Gpu, installed_version, require_flashinfer
from sgl_tune.errors import UsageError, WorkFailed

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Devices:
    kind: str
    gpus: tuple[int, ...]
    workers: int

    def __str__(self) -> str:
        where = "the CPU" if self.kind == "cpu" else f"GPU {', '.join(map(str, self.gpus))}"
        return f"{self.workers} worker{'s' * (self.workers > 1)} on {where}"


def choose_devices(kind: str, here: tuple[Gpu, ...]) -> Devices:
    """Return the CPU, or every GPU that CUDA_VISIBLE_DEVICES leaves."""
    if kind == "cpu" or (kind == "auto" and not here):
        return Devices("cpu", (), 1)
    if not here:
        raise UsageError("--device cuda: no GPU driver answers here", "--device cpu tunes the CPU's kernels")
    return Devices("cuda", tuple(range(len(here))), len(here))


def check_importable() -> None:
    """Import FlashInfer in the process that tunes, and report any failure in one line."""
    try:
        import flashinfer.autotuner  # noqa: F401
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WorkFailed(
            f"FlashInfer {installed_version('flashinfer')} cannot be imported here ({reason})",
            "some versions ask for a GPU when they are imported: tune where there is one, or repair it",
        ) from error


def check_target(deployment: "Deployment", devices: Devices, here: tuple[Gpu, ...]) -> None:
    """Refuse to tune with another FlashInfer or GPU than the one that will read the cache."""
    require_flashinfer(deployment.inputs.flashinfer_version)
    arch = CPU.arch if devices.kind == "cpu" else here[devices.gpus[0]].arch
    if arch != deployment.arch:
        raise UsageError(
            f"the target is {deployment.arch}, the devices here are {arch}",
            "tune on a machine of its kind; --dry-run needs none",
        )
