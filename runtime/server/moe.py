"""Which backend runs the experts, and how they are spread over the ranks."""

from __future__ import annotations

from runtime.server.choices import Choices

_TRTLLM_BY_DEFAULT: dict[str, set[str | None]] = {
    **{
        kind: {"fp8", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", None}
        for kind in ("deepseek_v3", "deepseek_v32", "glm_moe_dsa")
    },
    "qwen3_moe": {"fp8", "modelopt_fp4", None},
    "glm4_moe": {"modelopt_fp4", None},
}
_EP_SPANS_TP = (
    *("megamoe", "flashinfer", "flashinfer_megamoe", "deepep", "deepep_v2"),
    *("mooncake", "nixl", "ascend_fuseep", "mori", "pplx"),
)


def settle_moe_runner(c: Choices) -> None:
    if c.moe_runner_backend != "auto":
        return
    model, major = c.model, c.gpu.major
    if model.model_type == "gpt_oss":
        if major in (10, 12) and model.quantization == "mxfp4":
            c.settle("mxfp4 experts on Blackwell", moe_runner_backend="flashinfer_mxfp4")
        elif c.ep_size == 1 and c.quantization is None:
            c.settle("gpt-oss without expert parallelism", moe_runner_backend="triton_kernel")
    elif (
        major == 10
        and c.moe_a2a_backend == "none"
        and c.quantization in _TRTLLM_BY_DEFAULT.get(model.model_type, ())
    ):
        c.settle("this family on Blackwell", moe_runner_backend="flashinfer_trtllm")
    elif c.quantization == "mxfp8":
        c.settle("mxfp8 experts", moe_runner_backend="flashinfer_trtllm")
    elif c.quantization == "modelopt_fp4" and major in (11, 12):
        c.settle("nvfp4 experts on this GPU", moe_runner_backend="flashinfer_cutlass")


def settle_all_to_all(c: Choices) -> None:
    if c.moe_a2a_backend in _EP_SPANS_TP:
        c.settle(f"{c.moe_a2a_backend} spreads the experts over all TP ranks", ep_size=c.tp_size)
