"""A row a MoE backend: what it takes, and what of this runtime stands for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Families of tuned calls: those of one look their tactics up alike.
Calls = Literal["cutlass", "trtllm", "mxfp4"]


@dataclass(frozen=True, slots=True)
class MoEBackendRow:
    name: str
    # MODULE:CLASS of runtime/moe: the kernels that this runtime has, and a reference in torch for all others.
    kernels: str = "torch_backend:TorchBackend"
    calls: Calls | None = None  # None: FlashInfer has nothing to tune
    # The GPUs that it has kernels for, where not all that are tuned.
    kernel_majors: tuple[int, ...] = ()
    # Its kernels are others than the stand-in's: a prediction's workspaces are not its own.
    stood_in: bool = True
    # But on these GPUs this runtime has them, of which no sizes are known.
    own_majors: tuple[int, ...] = ()
    # But their sizes are known: a prediction needs no stand-in.
    is_predicted: bool = False
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


_BLACKWELL_SERVER = (10,)
_TRITON_KERNELS = "triton_backend:TritonBackend"
_TRTLLM_KERNELS = "flashinfer_trtllm:FlashInferTrtllmBackend"
BACKENDS = {
    row.name: row
    for row in (
        MoEBackendRow("auto", kernels=_TRITON_KERNELS, stood_in=False),
        MoEBackendRow("triton", kernels=_TRITON_KERNELS, stood_in=False),
        MoEBackendRow("torch", stood_in=False),
        MoEBackendRow(
            "deep_gemm", kernels="deep_gemm:DeepGemmBackend", is_predicted=True, under_flashinfer_a2a=True
        ),
        MoEBackendRow(
            "flashinfer_cutlass",
            "flashinfer_cutlass:FlashInferCutlassBackend",
            "cutlass",
            stood_in=False,
            fuses_shared_experts=True,
            takes=("modelopt_fp4", "modelopt_fp8", None),
            spread_over_one_or_all=True,
            under_flashinfer_a2a=True,
        ),
        MoEBackendRow(
            "flashinfer_trtllm",
            _TRTLLM_KERNELS,
            "trtllm",
            kernel_majors=_BLACKWELL_SERVER,
            stood_in=False,
            marks_with_minus_one=True,
            takes=("modelopt_fp4", "fp8", "modelopt_fp8", None),
            under_flashinfer_a2a=True,
        ),
        MoEBackendRow(
            "flashinfer_trtllm_routed",
            _TRTLLM_KERNELS,
            "trtllm",
            kernel_majors=_BLACKWELL_SERVER,
            stood_in=False,
            routed=True,
            takes=("fp8", "modelopt_fp4", None),
            under_flashinfer_a2a=True,
        ),
        MoEBackendRow(
            "flashinfer_mxfp4", "flashinfer_mxfp4:FlashInferMxfp4Backend", "mxfp4", own_majors=(9,)
        ),
    )
}


def backend_row(name: str) -> MoEBackendRow:
    """What SGLang runs by kernels of its own, or nobody knows, has nothing that FlashInfer tunes."""
    return BACKENDS.get(name) or MoEBackendRow(name)
