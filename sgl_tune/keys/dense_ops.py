"""The lookups of FlashInfer's tuned GEMMs of dense layers, held against that package's own key functions."""

from __future__ import annotations

from runtime.server.flashinfer import KeyForm
from runtime.server.rows import Seen
from sgl_tune.cache.policies import COLD, HOT
from sgl_tune.keys.op_shapes import ABSENT, E2M1, MX_E4M3, Dtype, OpShape, Profile

# Of mm_fp4's backends, by SGLang's names for them.
FP4_RUNNERS = {
    "flashinfer_cutedsl": "CuteDSLFp4GemmRunner",
    "flashinfer_cutlass": "CutlassFp4GemmRunner",
    "flashinfer_cudnn": "CudnnFp4GemmRunner",
    "flashinfer_trtllm": "TrtllmGemmRunner",
}
MXFP8_RUNNERS = {
    "flashinfer_cutedsl": "CuteDSLMxfp8GemmRunner",
    "flashinfer_cutlass": "CutlassMxfp8GemmRunner",
    "flashinfer_trtllm": "TrtllmMxFp8GemmRunner",
}
_FP4_GROUP, _MXFP8_GROUP = 16, 32
_MXFP8_WORKSPACE = 32 << 20
_SCALE_ROWS, _SCALE_COLUMNS = 128, 4  # a tile of interleaved scales


def products_in_fp8(k: int, n: int, output: Dtype, form: KeyForm, seen: Seen, products: int = 1) -> OpShape:
    """`bmm_fp8`: one product of a linear layer quantized per tensor, or one a head."""
    e4m3 = Dtype("torch.float8_e4m3fn")

    def profile(tokens: int) -> Profile:
        sizes = ((products, tokens, k), (products, k, n))
        return (*sizes, (1,), (1,), (products, -1, n), (form.workspace,))

    extras = ((e4m3, e4m3, output),)
    return OpShape("fp8_gemm", HOT, profile, extras, "CublasFp8GemmRunner", seen)


def dense_fp4(k: int, n: int, backend: str, output: Dtype, form: KeyForm, seen: Seen) -> OpShape:
    """`mm_fp4`: two values a byte, weights as columns and padded, a scale for sixteen values, one for all."""
    aligned_n, aligned_k = (_SCALE_ROWS, 64) if backend == "flashinfer_trtllm" else (32, 32)
    rows, columns = _round_up(n, aligned_n), _round_up(k, aligned_k)
    groups = _round_up(columns // _FP4_GROUP, _SCALE_COLUMNS)
    weight = ((columns // 2, rows), (-1, groups), (groups, _round_up(n, _SCALE_ROWS)))
    rest = ((), ABSENT, (-1, rows), ABSENT, ABSENT, (form.workspace,))

    def profile(tokens: int) -> Profile:
        return ((tokens, columns // 2), *weight, *rest)

    options = {"flashinfer_trtllm": form.trtllm_gemm, "flashinfer_cudnn": (output, _FP4_GROUP, True, True)}
    return OpShape("fp4_gemm", COLD, profile, (options.get(backend, ()),), FP4_RUNNERS[backend], seen)


def dense_mxfp8(k: int, n: int, backend: str, output: Dtype, form: KeyForm, seen: Seen) -> OpShape:
    """`mm_mxfp8`: a scale for 32 values, interleaved in one row."""
    scales = _round_up(n, _SCALE_ROWS) * _round_up(k // _MXFP8_GROUP, _SCALE_COLUMNS)

    def profile(tokens: int) -> Profile:
        return ((tokens, k), (k, n), (-1,), (scales,), ABSENT, (-1, n), (_MXFP8_WORKSPACE,))

    policy = COLD if backend == "flashinfer_cutedsl" else HOT
    options = {
        "flashinfer_trtllm": tuple(MX_E4M3 if one == E2M1 else one for one in form.trtllm_gemm),
        "flashinfer_cutedsl": (str(output), True) if form.cutedsl_mxfp8 else (),
    }
    return OpShape("mxfp8_gemm", policy, profile, (options.get(backend, ()),), MXFP8_RUNNERS[backend], seen)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
