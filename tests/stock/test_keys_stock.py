"""Our key formulas against FlashInfer's own key functions, with the calls that SGLang makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer import fused_moe
from flashinfer.gemm.gemm_base import fp8_gemm_sm100

from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.dense_shapes import linear_sizes, tunes_absorbed
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from tests.oracle.deepseek_v4 import FLASH, FLASH_NVFP4, PRO, folder_of
from tests.oracle.published import published
from tests.runtime.starts import PRESETS
from tests.stock.calls import (
    BF16,
    FP4,
    FP8,
    INT32,
    Call,
    assert_planned,
    bf16,
    bf16_routed,
    by_chunk,
    common_arguments,
    deployment_of,
    fp8_block,
    fp8_block_packed,
    fp8_block_routed,
    fp8_tensor,
    fp8_tensor_routed,
    largest_of,
    meta,
    mxfp4,
    mxfp4_plain,
    mxfp8,
    nvfp4,
    nvfp4_by_token,
    serve,
    sizes_of,
)
from tests.stock.kernel_stubs import (
    asking_tuner,
    cutlass_module,
    install_gemm_module,
    install_trtllm_module,
)

CUTLASS = [
    {"model_path": "Qwen3-30B-A3B"},
    {"model_path": "Qwen3-30B-A3B", "tp": 4},
    {"model_path": "Qwen3-30B-A3B", "tp": 4, "ep": 4},
    {"model_path": "GLM-5.1", "tp": 8, "ep": 8},
    {"model_path": "Mixtral-8x7B", "tp": 2, "chunked_prefill_size": 6144},
    {"model_path": "Qwen3-235B-A22B", "tp": 8, "dp": 8, "sglang_version": "0.5.17"},
    {"model_path": "Qwen3-30B-A3B", "dtype": "float16"},
    {"model_path": "Qwen3-30B-A3B", "tp": 2, "quantization": "modelopt_fp8"},
]


@pytest.mark.parametrize("flags", CUTLASS)
def test_cutlass(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = cutlass_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    install_gemm_module(monkeypatch)
    deployment = deployment_of(**flags, moe_runner_backend="flashinfer_cutlass", arch="sm90")
    output = getattr(torch, deployment.runtime.dtype)
    weight = FP8 if deployment.quantization else output

    def call(deployment: Deployment, rows: int) -> None:
        h, e, _, k, i = sizes_of(deployment)
        module.cutlass_fused_moe(
            output=meta(rows, h, dtype=output),
            input=meta(rows, h, dtype=weight),
            token_selected_experts=meta(rows, k, dtype=INT32),
            token_final_scales=meta(rows, k, dtype=torch.float32),
            fc1_expert_weights=meta(e, 2 * i, h, dtype=weight),
            fc1_expert_biases=None,
            fc2_expert_weights=meta(e, h, i, dtype=weight),
            fc2_expert_biases=None,
            output_dtype=output,
            quant_scales=None,
            ep_size=deployment.parallel.moe_ep,
            tp_size=deployment.parallel.moe_tp,
            ep_rank=deployment.parallel.moe_ep - 1,
            tp_rank=deployment.parallel.moe_tp - 1,
            tune_max_num_tokens=largest_of(deployment, rows),
            use_fused_finalize=deployment.runtime.fused_finalize,
            enable_pdl=True,
        )
        if deployment.quantization:
            _call_dense_fp8(deployment, rows)

    assert_planned(deployment, serve(deployment, call, tuner))


def _call_dense_fp8(deployment: Deployment, rows: int) -> None:
    for k, n, _ in linear_sizes(deployment, "modelopt_fp8"):
        _fp8_products(1, rows, k, n)


def _fp8_products(products: int, rows: int, k: int, n: int) -> None:
    scale = meta(1, dtype=torch.float32)
    matrices = meta(products, rows, k, dtype=FP8), meta(products, k, n, dtype=FP8)
    workspace = meta(32 << 20, dtype=torch.uint8)
    fp8_gemm_sm100(*matrices, scale, scale, meta(products, rows, n), workspace, ["cublas"])


@pytest.mark.parametrize(
    "flags",
    [
        {"model_path": "Llama-3.1-8B"},
        {"model_path": "Llama-3.1-70B", "tp": 8, "chunked_prefill_size": 2048, "max_running_requests": 3000},
    ],
)
def test_dense_fp8(flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = asking_tuner(monkeypatch)
    install_gemm_module(monkeypatch)
    deployment = deployment_of(**flags, quantization="modelopt_fp8", arch="sm90")
    assert_planned(deployment, serve(deployment, _call_dense_fp8, tuner))


def test_absorbed_fp8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """16 of 128 heads fold queries of 128 into a latent of 512, and unfold answers; beside dense products."""
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    preset = json.loads((PRESETS / "DeepSeek-V3.json").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps({**preset, "quantization_config": section}))
    tuner = asking_tuner(monkeypatch)
    install_gemm_module(monkeypatch)
    told = {"model_path": str(tmp_path), "tp": 8, "moe_runner_backend": "flashinfer_cutlass", "arch": "sm90"}
    deployment = deployment_of(**told)

    def call(deployment: Deployment, rows: int) -> None:
        _call_dense_fp8(deployment, rows)
        _fp8_products(16, rows, 128, 512)
        _fp8_products(16, rows, 512, 128)

    asked = serve(deployment, call, tuner)
    dense = next(op for op in expected_keys(deployment) if op.op == "fp8_gemm")
    assert asked == dict.fromkeys(dense.keys, dense.policy)


def test_what_is_quantized_after_loading_was_absorbed_before() -> None:
    for quantization in (None, "fp8"):
        flags = {"model_path": "GLM-5.1", "tp": 8, "quantization": quantization}
        deployment = deployment_of(**flags, moe_runner_backend="flashinfer_trtllm")
        assert not tunes_absorbed(deployment) and not unplanned(deployment)


ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
TRTLLM = [
    (fp8_block, {"model_path": "DeepSeek-V3", "tp": 8}),
    (fp8_block, {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "max_running_requests": 2048}),
    (fp8_block, {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8, "sglang_version": "0.5.17"}),
    (fp8_block_routed, {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8}),
    (fp8_block_routed, {"model_path": "DeepSeek-V3", "tp": 8, **ROUTED}),
    (fp8_block_packed, {"model_path": "DeepSeek-V3", "tp": 8, "sglang_version": "0.5.17", **ROUTED}),
    (fp8_tensor, {"model_path": "Qwen3-30B-A3B", "quantization": "modelopt_fp8"}),
    (fp8_tensor, {"model_path": "Qwen3-30B-A3B", "quantization": "modelopt_fp8", "tp": 4}),
    (bf16, {"model_path": "Qwen3-30B-A3B"}),
    (bf16, {"model_path": "Qwen3-235B-A22B", "tp": 8, "ep": 2}),
    (bf16_routed, {"model_path": "Qwen3-30B-A3B", "tp": 2, **ROUTED}),
    (nvfp4, {"model_path": "Qwen3-235B-A22B", "quantization": "modelopt_fp4", "tp": 4}),
    (nvfp4, {"model_path": "DeepSeek-V3", "quantization": "modelopt_fp4", "tp": 8}),
    (nvfp4_by_token, {"model_path": "Qwen3-30B-A3B", "quantization": "nvfp4_online", "tp": 4}),
    (mxfp8, {"model_path": "Qwen3-30B-A3B", "quantization": "mxfp8", "tp": 4}),
    (mxfp8, {"model_path": "Qwen3-235B-A22B", "quantization": "mxfp8", "tp": 8, "ep": 4}),
    (mxfp4, {"model_path": "gpt-oss-120b", "tp": 4}),
    (mxfp4, {"model_path": "gpt-oss-20b", "chunked_prefill_size": 4096}),
    (mxfp4_plain, {"model_path": "gpt-oss-20b", "tp": 2}),
]


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize(("call", "flags"), TRTLLM)
def test_trtllm(call: Call, flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install_trtllm_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    deployment = deployment_of(**{"moe_runner_backend": "flashinfer_trtllm", **flags})
    if call in (mxfp4, mxfp4_plain):
        rows = "bf16" if call is mxfp4_plain else "default"
        deployment = deployment_of(**flags).asking(flashinfer_mxfp4_moe_precision=rows)
    asked = serve(deployment, call, tuner)
    experts = [op for op in expected_keys(deployment) if op.op not in ("fp8_gemm", "fp4_gemm", "mxfp8_gemm")]
    assert {key: op.policy for op in experts for key in op.keys} == asked


def test_fp8_experts_that_are_chosen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MiniMax-M2's, by sigmoids and a correction: no kernel chooses so."""
    config = {**published()["MiniMaxAI/MiniMax-M2"].config, "quantization_config": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    install_trtllm_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    flags = {"moe_runner_backend": "flashinfer_trtllm", "quantization": "modelopt_fp8", "tp": 4}
    deployment = deployment_of(model_path=str(tmp_path), **flags)
    asked = serve(deployment, fp8_tensor_routed, tuner)
    experts = [op for op in expected_keys(deployment) if op.op != "fp8_gemm"]
    assert {key: op.policy for op in experts for key in op.keys} == asked


def _fp4_chosen(deployment: Deployment, rows: int, group: int, pad: int) -> None:
    """As DeepSeek-V4's layers call: each is given its experts, whether by a hash or by scores."""
    h, e, _, k, _ = sizes_of(deployment)
    common = common_arguments(deployment, rows, pad)
    ids, i = meta(rows, k, dtype=INT32), common["intermediate_size"]
    apart = (ids, meta(rows, k, dtype=torch.float32))
    fused_moe.trtllm_fp4_block_scale_routed_moe(
        topk_ids=apart if deployment.server.release.routes_apart else ids,
        routing_bias=None,
        hidden_states=meta(rows, h, dtype=FP8) if group == 32 else meta(rows, h // 2, dtype=FP4),
        hidden_states_scale=meta(rows, h // group, dtype=FP8),
        gemm1_weights=meta(e, 2 * i, h // 2, dtype=FP4),
        gemm1_weights_scale=meta(e, 2 * i, h // group, dtype=FP8),
        gemm1_bias=None,
        gemm1_alpha=None,
        gemm1_beta=None,
        gemm1_clamp_limit=meta(e, dtype=torch.float32),
        gemm2_weights=meta(e, h, i // 2, dtype=FP4),
        gemm2_weights_scale=meta(e, h, i // group, dtype=FP8),
        gemm2_bias=None,
        **dict.fromkeys(_OUTPUT_SCALES, meta(e, dtype=torch.float32)),
        do_finalize=True,
        output=meta(rows, h),
        **common,
    )


def _mxfp4_chosen(deployment: Deployment, rows: int) -> None:
    _fp4_chosen(deployment, rows, group=32, pad=128)


def _nvfp4_chosen(deployment: Deployment, rows: int) -> None:
    _fp4_chosen(deployment, rows, group=16, pad=64)


_OUTPUT_SCALES = ("output1_scale_scalar", "output1_scale_gate_scalar", "output2_scale_scalar")


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize(
    ("config", "call", "flags"),
    [
        (FLASH, _mxfp4_chosen, {"tp": 4}),
        (FLASH, _mxfp4_chosen, {"tp": 4, "sglang_version": "0.5.19"}),
        (FLASH, _mxfp4_chosen, {"tp": 8, "ep": 8}),
        (PRO, _mxfp4_chosen, {"tp": 16}),  # 192 wide, made 256
        (PRO, _mxfp4_chosen, {"tp": 8, "dp": 8, "enable_dp_attention": True, "max_running_requests": 512}),
        (FLASH_NVFP4, _nvfp4_chosen, {"tp": 4}),
    ],
)
def test_deepseek_v4_on_trtllms_kernels(
    config: dict[str, Any], call: Call, flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_trtllm_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    deployment = deployment_of(model_path=folder_of(config, tmp_path), **flags)
    assert_planned(deployment, serve(deployment, call, tuner))


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
@pytest.mark.parametrize("flags", [{"tp": 4}, {"tp": 8, "ep": 2}, {"tp": 4, "sglang_version": "0.5.19"}])
def test_deepseek_v4_on_cutlass(
    arch: str, flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = cutlass_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    deployment = deployment_of(model_path=folder_of(FLASH, tmp_path), arch=arch, **flags)
    on_hopper = arch == "sm90"
    weight, packed = (torch.uint8, 2) if on_hopper else (torch.int64, 16)

    def call(deployment: Deployment, rows: int) -> None:
        h, e, _, k, i = sizes_of(deployment)
        module.cutlass_fused_moe(
            output=meta(rows, h),
            input=meta(rows, h, dtype=BF16 if on_hopper else FP8),
            token_selected_experts=meta(rows, k, dtype=INT32),
            token_final_scales=meta(rows, k, dtype=torch.float32),
            fc1_expert_weights=meta(e, 2 * i, h // packed, dtype=weight),
            fc1_expert_biases=None,
            fc2_expert_weights=meta(e, h, i // packed, dtype=weight),
            fc2_expert_biases=None,
            output_dtype=BF16,
            quant_scales=None,
            swiglu_limit=meta(e, dtype=torch.float32),
            ep_size=deployment.parallel.moe_ep,
            tp_size=deployment.parallel.moe_tp,
            ep_rank=deployment.parallel.moe_ep - 1,
            tp_rank=deployment.parallel.moe_tp - 1,
            use_w4_group_scaling=on_hopper,
            use_mxfp8_act_scaling=not on_hopper,
            tune_max_num_tokens=by_chunk(deployment, rows),
            use_fused_finalize=deployment.runtime.fused_finalize,
            enable_pdl=True,
        )

    assert_planned(deployment, serve(deployment, call, tuner))


def test_our_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = asking_tuner(monkeypatch)
    deployment = resolve_deployment(ServerFlags(tp=8, dp=8, arch="cpu"), environ={})

    def call(deployment: Deployment, rows: int) -> None:
        h, e, total, k, i = sizes_of(deployment)
        largest = largest_of(deployment, rows)
        sizes = {"num_experts": total, "tune_max_num_tokens": largest}
        expert = torch.zeros(rows, k, dtype=torch.int64)
        grouped_gemm(GEMM1, _zeros(rows, h), expert, _zeros(e, 2 * i, h), **sizes)
        grouped_gemm(GEMM2, _zeros(rows, k, i), expert, _zeros(e, h, i), **sizes)

    assert_planned(deployment, serve(deployment, call, tuner))


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=BF16)
