"""When an SGLang server runs FlashInfer's autotuner at its start, and for which of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.server.rules import arch_major
from runtime.server.sizing import release

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

CPU_ARCH = "cpu"
_FIRST_TUNED_CAPABILITY = 9
_TUNED_SINCE = {
    "flashinfer_trtllm": (0, 5, 12),
    "flashinfer_trtllm_routed": (0, 5, 13),
    "flashinfer_mxfp4": (0, 5, 12),
    "flashinfer_cutedsl": (0, 5, 12),
    "flashinfer_cutlass": (0, 5, 13),
    "flashinfer_megamoe": (0, 5, 22),
}
MODELOPT_FP8 = ("modelopt", "modelopt_fp8")
_DENSE_FP8_ON_HOPPER_SINCE = (0, 5, 18)


def tunes_moe(deployment: Deployment) -> bool:
    backend = deployment.runtime.moe_runner_backend
    since = _TUNED_SINCE.get(backend)
    return (
        autotune_runs(deployment)
        and deployment.model.num_moe_layers > 0
        and since is not None
        and release(deployment.sglang_version) >= since
        and not (backend == "flashinfer_cutedsl" and deployment.runtime.moe_a2a_backend == "deepep")
    )


def tunes_dense(deployment: Deployment) -> bool:
    if deployment.quantization not in MODELOPT_FP8 or not autotune_runs(deployment):
        return False
    if release(deployment.sglang_version) >= _DENSE_FP8_ON_HOPPER_SINCE:
        return arch_major(deployment.arch) in (9, 10, 12)
    return arch_major(deployment.arch) == 10


def autotune_runs(deployment: Deployment) -> bool:
    capable = deployment.arch == CPU_ARCH or arch_major(deployment.arch) >= _FIRST_TUNED_CAPABILITY
    return capable and not deployment.runtime.disable_autotune
