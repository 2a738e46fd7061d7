"""Choose the devices that search, and check that the target will use what they find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.flashinfer.versions import doubt_of, flashinfer_of
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
        if self.kind == "cpu":
            return f"{self.workers} worker{'s' * (self.workers > 1)} on the CPU"
        return f"{self.workers} worker{'s' * (self.workers > 1)} on GPU {', '.join(map(str, self.gpus))}"


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


def target_doubts(deployment: Deployment) -> Iterator[str]:
    """Yield what the installed FlashInfer cannot do, or what is not known about it."""
    version = deployment.flashinfer_version
    unread = doubt_of(version)
    if unread:
        yield unread
    if not flashinfer_of(version).has_v2:
        yield (
            f"SGLang {deployment.sglang_version} tunes with autotune_v2, which FlashInfer {version} has not: "
            "no such server starts, and this cache is under its key"
        )


def check_target(deployment: Deployment, devices: Devices, here: tuple[Gpu, ...]) -> None:
    """Refuse to tune with another FlashInfer or GPU than the one that will read the cache."""
    installed = deployment.flashinfer_version
    require_flashinfer(installed)
    skipped = deployment.server.asked.flashinfer_autotune_skip_ops
    if skipped and not flashinfer_of(installed).skips_ops:
        raise UsageError(
            f"--flashinfer-autotune-skip-ops {' '.join(skipped)}: FlashInfer {installed} cannot skip ops",
            "leave it out, or tune with FlashInfer 0.6.13 or later",
        )
    arch = CPU.arch if devices.kind == "cpu" else here[devices.gpus[0]].arch
    if arch != deployment.arch:
        raise UsageError(
            f"the target is {deployment.arch}, the devices here are {arch}",
            "tune on a machine of its kind; --dry-run needs none",
        )
