"""A row a MoE backend: since when it is tuned, how its calls are ranged, and what stands in for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The kernels that this runtime has: FlashInfer's, and a reference in torch for all others.
Kernels = Literal["torch", "flashinfer_cutlass", "flashinfer_trtllm"]


@dataclass(frozen=True, slots=True)
class MoEBackendRow:
    """`tuned_since` is the first release whose server tunes it; None: FlashInfer has nothing to tune."""

    name: str
    tuned_since: tuple[int, ...] | None = None
    kernels: Kernels = "torch"
    # Its kernels are others than the stand-in's: a prediction's workspaces are not its own.
    stood_in: bool = True
    # The range of its buckets follows the prefill chunk where a release does so.
    ranged_by_chunk: bool = False
    # It is given the experts' ids and weights, not the router's logits.
    routed: bool = False
    # A row that no expert takes is marked with -1, or with the number behind the last expert.
    marks_with_minus_one: bool = False
    fuses_shared_experts: bool = False
    # Small batches of nvfp4 experts are left for a later kernel to finish.
    defers_finalising: bool = False
    # Its files carry the GPU's UUID where a release writes it.
    files_by_gpu: bool = False


_TRTLLM = MoEBackendRow(
    "flashinfer_trtllm",
    (0, 5, 12),
    "flashinfer_trtllm",
    stood_in=False,
    marks_with_minus_one=True,
    defers_finalising=True,
)
BACKENDS = {
    row.name: row
    for row in (
        MoEBackendRow("auto", stood_in=False),
        MoEBackendRow("triton", stood_in=False),
        MoEBackendRow("torch", stood_in=False),
        MoEBackendRow(
            "flashinfer_cutlass",
            (0, 5, 13),
            "flashinfer_cutlass",
            stood_in=False,
            ranged_by_chunk=True,
            fuses_shared_experts=True,
        ),
        _TRTLLM,
        MoEBackendRow(
            "flashinfer_trtllm_routed", (0, 5, 13), "flashinfer_trtllm", stood_in=False, routed=True
        ),
        MoEBackendRow("flashinfer_mxfp4", (0, 5, 12)),
        MoEBackendRow("flashinfer_cutedsl", (0, 5, 12)),
        MoEBackendRow("flashinfer_megamoe", (0, 5, 22), files_by_gpu=True),
    )
}


def backend_row(name: str) -> MoEBackendRow:
    """What SGLang runs by kernels of its own, or nobody knows, has nothing that FlashInfer tunes."""
    return BACKENDS.get(name) or MoEBackendRow(name)
