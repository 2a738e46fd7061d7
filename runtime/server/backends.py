"""A row per MoE backend: what it takes, and what of this runtime stands for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Families of tuned calls: those of one look their tactics up alike.
Calls = Literal["cutlass", "trtllm", "mxfp4"]


@dataclass(frozen=True, slots=True)
class MoEBackendRow:
    name: str
    # MODULE:CLASS of runtime/moe; empty: others stand in for its kernels, and its workspaces are not known.
    kernels: str = ""
    calls: Calls | None = None  # None: FlashInfer has nothing to tune
    # The GPUs that it has kernels for, where not all that are tuned.
    kernel_majors: tuple[int, ...] = ()
    # It is given the experts' ids and weights, not the router's logits.
    routed: bool = False
    # A row that no expert takes is marked with -1, or with the number behind the last expert.
    marks_with_minus_one: bool = False
    fuses_shared_experts: bool = False
    # --quantization as it takes it; empty: nobody asks
    takes: tuple[str | None, ...] = ()
    # Experts are on one rank or on all: --ep is 1 or --tp.
    spread_over_one_or_all: bool = False
    under_flashinfer_a2a: bool = False

    @property
    def is_tuned(self) -> bool:
        return self.calls is not None


_TORCH = "torch_backend:TorchBackend"  # in place of Triton's kernels, whose workspaces it declares
_TRTLLM = "flashinfer_trtllm:FlashInferTrtllmBackend"
BACKENDS = {
    row.name: row
    for row in (
        MoEBackendRow("auto", _TORCH),
        MoEBackendRow("triton", _TORCH),
        MoEBackendRow("torch", _TORCH),
        MoEBackendRow("deep_gemm", under_flashinfer_a2a=True),
        MoEBackendRow(
            "flashinfer_cutlass",
            "flashinfer_cutlass:FlashInferCutlassBackend",
            "cutlass",
            fuses_shared_experts=True,
            takes=("modelopt_fp4", "modelopt_fp8", None),
            spread_over_one_or_all=True,
            under_flashinfer_a2a=True,
        ),
        MoEBackendRow(
            "flashinfer_trtllm",
            _TRTLLM,
            "trtllm",
            kernel_majors=(10,),
            marks_with_minus_one=True,
            takes=("modelopt_fp4", "fp8", "modelopt_fp8", None),
            under_flashinfer_a2a=True,
        ),
        MoEBackendRow(
            "flashinfer_trtllm_routed",
            _TRTLLM,
            "trtllm",
            kernel_majors=(10,),
            routed=True,
            takes=("fp8", "modelopt_fp4", None),
            under_flashinfer_a2a=True,
        ),
        MoEBackendRow("flashinfer_mxfp4", calls="mxfp4"),
    )
}


def backend_row(name: str) -> MoEBackendRow:
    """What SGLang runs by kernels of its own, or nobody knows, has nothing that FlashInfer tunes."""
    return BACKENDS.get(name) or MoEBackendRow(name)
