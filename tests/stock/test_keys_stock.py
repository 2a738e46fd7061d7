"""Our key formulas against FlashInfer's own key functions, with the calls that SGLang makes."""

from typing import Any

import pytest
import torch
from flashinfer.gemm import gemm_base
from flashinfer.gemm.gemm_base import fp8_gemm_sm100

from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm
from runtime.server.sizes.linears import Spread, quantized_sizes
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import expected_keys
from tests.sgl_tune.modelopt import in_modelopt
from tests.stock import calls, kernel_stubs

CUTLASS = [
    {"model_path": "Qwen3-30B-A3B"},
    {"model_path": "Qwen3-30B-A3B", "tp": 4},
    {"model_path": "Qwen3-30B-A3B", "tp": 4, "ep": 4},
    {"model_path": "GLM-5.1", "tp": 8, "ep": 8},
    {"model_path": "Mixtral-8x7B", "tp": 2, "chunked_prefill_size": 6144},
    {"model_path": "Qwen3-30B-A3B", "dtype": "float16"},
    {"model_path": "Qwen3-30B-A3B", "tp": 2, "quantization": "modelopt_fp8"},
]


@pytest.mark.parametrize("flags", CUTLASS)
def test_cutlass_asks_as_planned(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = kernel_stubs.cutlass_module(monkeypatch)
    tuner = kernel_stubs.asking_tuner(monkeypatch)
    kernel_stubs.install_gemm_module(monkeypatch)
    deployment = calls.deployment_of(**flags, moe_runner_backend="flashinfer_cutlass", arch="sm90")
    output = getattr(torch, deployment.runtime.dtype)
    weight = calls.FP8 if deployment.quantization else output

    def call(deployment: Deployment, rows: int) -> None:
        h, e, _, k, i = calls.sizes_of(deployment)
        module.cutlass_fused_moe(
            output=calls.meta(rows, h, dtype=output),
            input=calls.meta(rows, h, dtype=weight),
            token_selected_experts=calls.meta(rows, k, dtype=calls.INT32),
            token_final_scales=calls.meta(rows, k, dtype=torch.float32),
            fc1_expert_weights=calls.meta(e, 2 * i, h, dtype=weight),
            fc1_expert_biases=None,
            fc2_expert_weights=calls.meta(e, h, i, dtype=weight),
            fc2_expert_biases=None,
            output_dtype=output,
            quant_scales=None,
            ep_size=deployment.parallel.moe_ep,
            tp_size=deployment.parallel.moe_tp,
            ep_rank=deployment.parallel.moe_ep - 1,
            tp_rank=deployment.parallel.moe_tp - 1,
            tune_max_num_tokens=calls.largest_of(deployment, rows),
            use_fused_finalize=False,
            enable_pdl=True,
        )
        if deployment.quantization:
            _call_dense_fp8(deployment, rows)

    calls.assert_planned(deployment, calls.serve(deployment, call, tuner))


def _linears(deployment: Deployment) -> tuple[tuple[int, int, str], ...]:
    tp = deployment.parallel.tp
    return quantized_sizes(deployment.model, deployment.parallel, Spread(tp, tp))


def _call_dense_fp8(deployment: Deployment, rows: int) -> None:
    scale, workspace = calls.meta(1, dtype=torch.float32), calls.meta(32 << 20, dtype=torch.uint8)
    for k, n, _ in _linears(deployment):
        matrices = calls.meta(1, rows, k, dtype=calls.FP8), calls.meta(1, k, n, dtype=calls.FP8)
        fp8_gemm_sm100(*matrices, scale, scale, calls.meta(1, rows, n), workspace, ["cublas"])


@pytest.mark.parametrize(
    "flags",
    [
        {"model_path": "Llama-3.1-8B"},
        {"model_path": "Llama-3.1-70B", "tp": 8, "chunked_prefill_size": 2048, "max_running_requests": 3000},
    ],
)
def test_dense_fp8_asks_as_planned(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = kernel_stubs.asking_tuner(monkeypatch)
    kernel_stubs.install_gemm_module(monkeypatch)
    deployment = calls.deployment_of(**flags, quantization="modelopt_fp8", arch="sm90")
    calls.assert_planned(deployment, calls.serve(deployment, _call_dense_fp8, tuner))


FP4_BACKENDS = {"flashinfer_cutlass": "cutlass", "flashinfer_cudnn": "cudnn", "flashinfer_trtllm": "trtllm"}


@pytest.mark.parametrize("asked", FP4_BACKENDS)
def test_dense_nvfp4_asks_as_planned(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = kernel_stubs.asking_tuner(monkeypatch)
    kernel_stubs.install_fp4_module(monkeypatch)
    told = {"model_path": in_modelopt("Qwen3-30B-A3B", "NVFP4"), "tp": 2, "arch": "sm100"}
    deployment = calls.deployment_of(**told, moe_runner_backend="flashinfer_trtllm")
    deployment = deployment.asking(fp4_gemm_runner_backend=asked)

    def call(deployment: Deployment, rows: int) -> None:
        for k, n, _ in _linears(deployment):
            a, b = calls.meta(rows, k // 2, dtype=calls.FP4), calls.meta(n, k // 2, dtype=calls.FP4).T
            a_scale = calls.meta(-(-rows // 128) * 128, k // 16, dtype=calls.FP8)
            b_scale = calls.meta(-(-n // 128) * 128, k // 16, dtype=calls.FP8).T
            told = (a, b, a_scale, b_scale, calls.meta(dtype=torch.float32), torch.bfloat16)
            gemm_base.mm_fp4(*told, backend=FP4_BACKENDS[asked], skip_check=True)

    asked_for = calls.serve(deployment, call, tuner)
    op = next(op for op in expected_keys(deployment) if op.op == "fp4_gemm")
    assert dict.fromkeys(op.keys, op.policy) == asked_for


ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
TRTLLM = [
    (calls.fp8_block, {"model_path": "DeepSeek-V3", "tp": 8}),
    (calls.fp8_block, {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "max_running_requests": 2048}),
    (calls.fp8_block_routed, {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8}),
    (calls.fp8_block_routed, {"model_path": "DeepSeek-V3", "tp": 8, **ROUTED}),
    (calls.bf16, {"model_path": "Qwen3-30B-A3B"}),
    (calls.bf16, {"model_path": "Qwen3-235B-A22B", "tp": 8, "ep": 2}),
    (calls.bf16_routed, {"model_path": "Qwen3-30B-A3B", "tp": 2, **ROUTED}),
    (calls.nvfp4, {"model_path": "Qwen3-235B-A22B", "quantization": "modelopt_fp4", "tp": 4}),
    (calls.mxfp4, {"model_path": "gpt-oss-120b", "tp": 4}),
    (calls.mxfp4, {"model_path": "gpt-oss-20b", "chunked_prefill_size": 4096}),
]


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize(("call", "flags"), TRTLLM)
def test_trtllm_asks_as_planned(
    call: calls.Call, flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_stubs.install_trtllm_module(monkeypatch)
    tuner = kernel_stubs.asking_tuner(monkeypatch)
    backend = {} if call is calls.mxfp4 else {"moe_runner_backend": "flashinfer_trtllm"}
    deployment = calls.deployment_of(**{**backend, **flags})
    assert calls.planned_experts(deployment) == calls.serve(deployment, call, tuner)


def test_our_cpu_kernels_ask_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = kernel_stubs.asking_tuner(monkeypatch)
    deployment = resolve_deployment(ServerFlags.of(tp=8, dp=8, arch="cpu"))

    def call(deployment: Deployment, rows: int) -> None:
        h, e, total, k, i = calls.sizes_of(deployment)
        largest = calls.largest_of(deployment, rows)
        sizes = {"num_experts": total, "tune_max_num_tokens": largest}
        expert = torch.zeros(rows, k, dtype=torch.int64)
        grouped_gemm(GEMM1, _zeros(rows, h), expert, _zeros(e, 2 * i, h), **sizes)
        grouped_gemm(GEMM2, _zeros(rows, k, i), expert, _zeros(e, h, i), **sizes)

    calls.assert_planned(deployment, calls.serve(deployment, call, tuner))


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=calls.BF16)
