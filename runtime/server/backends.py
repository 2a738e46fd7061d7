"""One row per MoE backend of SGLang: what it needs, and which class of this runtime replaces it."""

from dataclasses import dataclass
from typing import Literal

# Families of tuned calls: calls of one family look up their tactics in the same way.
Calls = Literal["cutlass", "trtllm", "mxfp4"]


@dataclass(frozen=True, slots=True)
class MoEBackendRow:
    name: str
    # MODULE:CLASS of runtime/moe; empty: other kernels replace it, and its workspaces are not known.
    kernels: str = ""
    calls: Calls | None = None  # None: FlashInfer has nothing to tune
    # The GPUs that it has kernels for, if not all on which it is tuned.
    kernel_majors: tuple[int, ...] = ()
    # Its input are the experts' ids and weights, not the router's logits.
    routed: bool = False
    # A row that no expert takes is marked with -1, or with the number behind the last expert.
    marks_with_minus_one: bool = False
    fuses_shared_experts: bool = False
    # The values of --quantization that it accepts; empty: not checked.
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
    """Return the backend's row. An unknown backend gets an empty row: FlashInfer tunes nothing for it."""
    return BACKENDS.get(name) or MoEBackendRow(name)
