"""What stays of a matrix once SGLang has loaded it and laid it out: srt/layers/quantization, by release."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LaidOut:
    """`mxfp8_beside`: GEMM backends whose scales are a copy beside the checkpoint's. `others_by_flashinfer`:
    what DeepGEMM does not take has a second one. `packs_compressed`: compressed-tensors' scales, too, as
    DeepGEMM reads them. `pads_for_marlin`: nvfp4's matrices, where before 64 rows had to be in one."""

    mxfp8_beside: tuple[str, ...] = ("flashinfer_cutlass",)
    others_by_flashinfer: bool = False
    packs_compressed: bool = False
    pads_for_marlin: bool = False


LAID_OUT_12 = LaidOut()
LAID_OUT_14 = LaidOut(mxfp8_beside=(*LAID_OUT_12.mxfp8_beside, "flashinfer_trtllm"))
LAID_OUT_15 = replace(LAID_OUT_14, packs_compressed=True)
LAID_OUT_16 = replace(LAID_OUT_15, mxfp8_beside=(*LAID_OUT_15.mxfp8_beside, "deep_gemm"))
# resolve_mxfp8_dense_gemm_backend: any other becomes one of FlashInfer's
_OTHERS = ("auto", "triton", "cutlass", "aiter", "flashinfer_cutedsl", "flashinfer_deepgemm")
LAID_OUT_18 = replace(
    LAID_OUT_16,
    mxfp8_beside=(*LAID_OUT_16.mxfp8_beside, *_OTHERS),
    others_by_flashinfer=True,
    pads_for_marlin=True,
)
