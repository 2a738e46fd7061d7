"""Our key formulas against FlashInfer's own key functions, with the calls that SGLang makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer import fused_moe
from flashinfer.gemm.gemm_base import fp8_gemm_sm100
from flashinfer.tllm_enums import Fp8QuantizationType

from runtime.autotune.cpu import GEMM1, GEMM2, grouped_gemm
from runtime.server.buckets import next_power_of_2, tuning_range
from runtime.server.rows import batch_rows
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.dense_shapes import linear_sizes, tunes_absorbed
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from tests.oracle.deepseek_v4 import FLASH, FLASH_NVFP4, PRO, folder_of
from tests.oracle.published import published
from tests.runtime.starts import PRESETS
from tests.sgl_tune.modelopt import as_checkpoint
from tests.stock.kernel_stubs import (
    AskingTuner,
    asking_tuner,
    cutlass_module,
    install_gemm_module,
    install_trtllm_module,
)

FP8, FP4, BF16, INT32 = torch.float8_e4m3fn, torch.uint8, torch.bfloat16, torch.int32
Call = Callable[[Deployment, int], None]


def _meta(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _deployment(**flags: Any) -> Deployment:
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm100"}
    return resolve_deployment(ServerFlags(**as_checkpoint({**target, **flags})), environ={})


def _largest(deployment: Deployment, rows: int) -> int:
    server = deployment.server
    prefill = batch_rows(server).prefill
    return tuning_range(server.backend, server.release, rows, prefill, server.is_pd_decode)


def _sizes(deployment: Deployment) -> tuple[int, int, int, int, int]:
    """hidden, experts of one rank, all experts, top k, a rank's intermediate size."""
    moe, parallel = deployment.model.moe, deployment.parallel
    assert moe is not None
    local = moe.num_experts // parallel.moe_ep
    intermediate = moe.intermediate_size // parallel.moe_tp
    return deployment.model.hidden_size, local, moe.num_experts, moe.top_k, intermediate


def _serve(deployment: Deployment, call: Call, tuner: AskingTuner) -> dict[str, tuple[Any, ...]]:
    """Every bucket's own row count, and rows between the buckets, up to the largest batch."""
    largest = batch_rows(deployment.server).serving
    buckets = {bucket for op in expected_keys(deployment) for bucket in op.buckets}
    between = {bucket - 1 for bucket in buckets if bucket > 2} | {largest}
    for rows in sorted(buckets | between):
        call(deployment, rows)
    return tuner.asked


def _assert_planned(deployment: Deployment, asked: dict[str, tuple[Any, ...]]) -> None:
    planned = {key: op.policy for op in expected_keys(deployment) for key in op.keys}
    assert planned == asked


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
    deployment = _deployment(**flags, moe_runner_backend="flashinfer_cutlass", arch="sm90")
    output = getattr(torch, deployment.runtime.dtype)
    weight = FP8 if deployment.quantization else output

    def call(deployment: Deployment, rows: int) -> None:
        h, e, _, k, i = _sizes(deployment)
        module.cutlass_fused_moe(
            output=_meta(rows, h, dtype=output),
            input=_meta(rows, h, dtype=weight),
            token_selected_experts=_meta(rows, k, dtype=INT32),
            token_final_scales=_meta(rows, k, dtype=torch.float32),
            fc1_expert_weights=_meta(e, 2 * i, h, dtype=weight),
            fc1_expert_biases=None,
            fc2_expert_weights=_meta(e, h, i, dtype=weight),
            fc2_expert_biases=None,
            output_dtype=output,
            quant_scales=None,
            ep_size=deployment.parallel.moe_ep,
            tp_size=deployment.parallel.moe_tp,
            ep_rank=deployment.parallel.moe_ep - 1,
            tp_rank=deployment.parallel.moe_tp - 1,
            tune_max_num_tokens=_largest(deployment, rows),
            use_fused_finalize=deployment.runtime.fused_finalize,
            enable_pdl=True,
        )
        if deployment.quantization:
            _call_dense_fp8(deployment, rows)

    _assert_planned(deployment, _serve(deployment, call, tuner))


def _call_dense_fp8(deployment: Deployment, rows: int) -> None:
    for k, n, _ in linear_sizes(deployment):
        _fp8_products(1, rows, k, n)


def _fp8_products(products: int, rows: int, k: int, n: int) -> None:
    scale = _meta(1, dtype=torch.float32)
    matrices = _meta(products, rows, k, dtype=FP8), _meta(products, k, n, dtype=FP8)
    workspace = _meta(32 << 20, dtype=torch.uint8)
    fp8_gemm_sm100(*matrices, scale, scale, _meta(products, rows, n), workspace, ["cublas"])


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
    deployment = _deployment(**flags, quantization="modelopt_fp8", arch="sm90")
    _assert_planned(deployment, _serve(deployment, _call_dense_fp8, tuner))


def test_absorbed_fp8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """16 of 128 heads fold queries of 128 into a latent of 512, and unfold answers; beside dense products."""
    section = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    preset = json.loads((PRESETS / "DeepSeek-V3.json").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps({**preset, "quantization_config": section}))
    tuner = asking_tuner(monkeypatch)
    install_gemm_module(monkeypatch)
    told = {"model_path": str(tmp_path), "tp": 8, "moe_runner_backend": "flashinfer_cutlass", "arch": "sm90"}
    deployment = _deployment(**told)

    def call(deployment: Deployment, rows: int) -> None:
        _call_dense_fp8(deployment, rows)
        _fp8_products(16, rows, 128, 512)
        _fp8_products(16, rows, 512, 128)

    asked = _serve(deployment, call, tuner)
    dense = next(op for op in expected_keys(deployment) if op.op == "fp8_gemm")
    assert asked == dict.fromkeys(dense.keys, dense.policy)


def test_what_is_quantized_after_loading_was_absorbed_before() -> None:
    for quantization in (None, "fp8"):
        flags = {"model_path": "GLM-5.1", "tp": 8, "quantization": quantization}
        deployment = _deployment(**flags, moe_runner_backend="flashinfer_trtllm")
        assert not tunes_absorbed(deployment) and not unplanned(deployment)


def _pad(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _common(deployment: Deployment, rows: int, pad: int) -> dict[str, Any]:
    """What SGLang passes to every trtllm MoE."""
    _, local, total, top_k, intermediate = _sizes(deployment)
    return {
        "num_experts": total,
        "top_k": top_k,
        "n_group": None,
        "topk_group": None,
        "intermediate_size": _pad(intermediate, pad),
        "local_expert_offset": 0,
        "local_num_experts": local,
        "routed_scaling_factor": 1.0,
        "routing_method_type": 1,
        "tune_max_num_tokens": next_power_of_2(rows),
        "enable_pdl": True,
    }


def _fp8_block(deployment: Deployment, rows: int, routed: bool = False, packed: bool = False) -> None:
    h, e, total, k, _ = _sizes(deployment)
    common = _common(deployment, rows, 128)
    i = common["intermediate_size"]
    tensors = {
        "routing_bias": None,
        "hidden_states": _meta(rows, h, dtype=FP8),
        "hidden_states_scale": _meta(h // 128, rows, dtype=torch.float32),
        "gemm1_weights": _meta(e, 2 * i, h, dtype=FP8),
        "gemm1_weights_scale": _meta(e, 2 * i // 128, h // 128, dtype=torch.float32),
        "gemm2_weights": _meta(e, h, i, dtype=FP8),
        "gemm2_weights_scale": _meta(e, h // 128, i // 128, dtype=torch.float32),
        "output": _meta(rows, h),
        "use_shuffled_weight": False,
        "fp8_quantization_type": Fp8QuantizationType.DeepSeekFp8,
    }
    if not routed:
        logits = _meta(rows, total, dtype=torch.float32)
        fused_moe.trtllm_fp8_block_scale_moe(routing_logits=logits, **tensors, **common)
        return
    ids = _meta(rows, k, dtype=INT32)
    topk = ids if packed else (ids, _meta(rows, k, dtype=torch.float32))
    fused_moe.trtllm_fp8_block_scale_routed_moe(topk_ids=topk, **tensors, **common)


def _fp8_block_routed(deployment: Deployment, rows: int) -> None:
    _fp8_block(deployment, rows, routed=True)


def _fp8_block_packed(deployment: Deployment, rows: int) -> None:
    _fp8_block(deployment, rows, routed=True, packed=True)


def _fp8_tensor(deployment: Deployment, rows: int, routed: bool = False) -> None:
    h, e, total, k, _ = _sizes(deployment)
    common = _common(deployment, rows, 128)
    i = common["intermediate_size"]
    tensors = {
        "routing_bias": None,
        "hidden_states": _meta(rows, h, dtype=FP8),
        "gemm1_weights": _meta(e, 2 * i, h, dtype=FP8),
        "output1_scales_scalar": _meta(e, dtype=torch.float32),
        "output1_scales_gate_scalar": _meta(e, dtype=torch.float32),
        "gemm2_weights": _meta(e, h, i, dtype=FP8),
        "output2_scales_scalar": _meta(e, dtype=torch.float32),
        "use_routing_scales_on_input": False,
    }
    if not routed:
        logits = _meta(rows, total)
        fused_moe.trtllm_fp8_per_tensor_scale_moe(routing_logits=logits, **tensors, **common)
        return
    topk = _meta(rows, k, dtype=INT32), _meta(rows, k, dtype=torch.float32)
    output = _meta(rows, h)
    fused_moe.trtllm_fp8_per_tensor_scale_routed_moe(topk_ids=topk, output=output, **tensors, **common)


def _fp8_tensor_routed(deployment: Deployment, rows: int) -> None:
    _fp8_tensor(deployment, rows, routed=True)


def _bf16(deployment: Deployment, rows: int, routed: bool = False) -> None:
    h, e, total, k, _ = _sizes(deployment)
    common = _common(deployment, rows, 128)
    i = common["intermediate_size"]
    tensors = {
        "hidden_states": _meta(rows, h),
        "gemm1_weights": _meta(e, h // 64, 2 * i, 64),
        "gemm2_weights": _meta(e, i // 64, h, 64),
    }
    if routed:
        topk = _meta(rows, k, dtype=INT32), _meta(rows, k)
        fused_moe.trtllm_bf16_routed_moe(topk_ids=topk, **tensors, **common)
    else:
        logits = _meta(rows, total)
        fused_moe.trtllm_bf16_moe(routing_logits=logits, routing_bias=None, **tensors, **common)


def _bf16_routed(deployment: Deployment, rows: int) -> None:
    _bf16(deployment, rows, routed=True)


def _fp4(
    deployment: Deployment,
    rows: int,
    *,
    x: torch.Tensor,
    x_scale: torch.Tensor | None,
    group: int,
    out: torch.Tensor,
    per_token_scale: torch.Tensor | None = None,
) -> None:
    _, e, total, _, _ = _sizes(deployment)
    common = _common(deployment, rows, 128 if group == 32 else 16)
    i, h = common["intermediate_size"], x.shape[1] * (2 if x.dtype == FP4 else 1)
    fused_moe.trtllm_fp4_block_scale_moe(
        routing_logits=_meta(rows, total),
        routing_bias=None,
        hidden_states=x,
        hidden_states_scale=x_scale,
        gemm1_weights=_meta(e, 2 * i, h // 2, dtype=FP4),
        gemm1_weights_scale=_meta(e, 2 * i, h // group, dtype=FP8),
        gemm1_bias=None,
        gemm1_alpha=None,
        gemm1_beta=None,
        gemm1_clamp_limit=None,
        gemm2_weights=_meta(e, h, i // 2, dtype=FP4),
        gemm2_weights_scale=_meta(e, h, i // group, dtype=FP8),
        gemm2_bias=None,
        output1_scale_scalar=None,
        output1_scale_gate_scalar=None,
        output2_scale_scalar=None,
        do_finalize=True,
        output=out,
        per_token_scale=per_token_scale,
        **common,
    )


def _nvfp4(deployment: Deployment, rows: int) -> None:
    h = deployment.model.hidden_size
    packed = {"x": _meta(rows, h // 2, dtype=FP4), "x_scale": _meta(rows, h // 16, dtype=FP8), "group": 16}
    _fp4(deployment, rows, **packed, out=_meta(rows, h))


def _nvfp4_by_token(deployment: Deployment, rows: int) -> None:
    h = deployment.model.hidden_size
    packed = {"x": _meta(rows, h // 2, dtype=FP4), "x_scale": _meta(rows, h // 16, dtype=FP8), "group": 16}
    scales = _meta(rows, dtype=torch.float32)
    _fp4(deployment, rows, **packed, out=_meta(rows, h), per_token_scale=scales)


def _mxfp4(deployment: Deployment, rows: int) -> None:
    padded = _pad(deployment.model.hidden_size, 256)
    x = {"x": _meta(rows, padded, dtype=FP8), "x_scale": _meta(rows, padded // 32, dtype=FP8), "group": 32}
    _fp4(deployment, rows, **x, out=_meta(rows, deployment.model.hidden_size))


def _mxfp4_plain(deployment: Deployment, rows: int) -> None:
    hidden = deployment.model.hidden_size
    x = _meta(rows, _pad(hidden, 256))
    _fp4(deployment, rows, x=x, x_scale=None, group=32, out=_meta(rows, hidden))


ROUTED = {"moe_runner_backend": "flashinfer_trtllm_routed"}
TRTLLM = [
    (_fp8_block, {"model_path": "DeepSeek-V3", "tp": 8}),
    (_fp8_block, {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "max_running_requests": 2048}),
    (_fp8_block, {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8, "sglang_version": "0.5.17"}),
    (_fp8_block_routed, {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8}),
    (_fp8_block_routed, {"model_path": "DeepSeek-V3", "tp": 8, **ROUTED}),
    (_fp8_block_packed, {"model_path": "DeepSeek-V3", "tp": 8, "sglang_version": "0.5.17", **ROUTED}),
    (_fp8_tensor, {"model_path": "Qwen3-30B-A3B", "quantization": "modelopt_fp8"}),
    (_bf16, {"model_path": "Qwen3-30B-A3B"}),
    (_bf16, {"model_path": "Qwen3-235B-A22B", "tp": 8, "ep": 2}),
    (_bf16_routed, {"model_path": "Qwen3-30B-A3B", "tp": 2, **ROUTED}),
    (_nvfp4, {"model_path": "Qwen3-235B-A22B", "quantization": "modelopt_fp4", "tp": 4}),
    (_nvfp4, {"model_path": "DeepSeek-V3", "quantization": "modelopt_fp4", "tp": 8}),
    (_nvfp4_by_token, {"model_path": "Qwen3-30B-A3B", "quantization": "nvfp4_online", "tp": 4}),
    (_mxfp4, {"model_path": "gpt-oss-120b", "tp": 4}),
    (_mxfp4, {"model_path": "gpt-oss-20b", "chunked_prefill_size": 4096}),
    (_mxfp4_plain, {"model_path": "gpt-oss-20b", "tp": 2}),
]


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize(("call", "flags"), TRTLLM)
def test_trtllm(call: Call, flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install_trtllm_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    deployment = _deployment(**{"moe_runner_backend": "flashinfer_trtllm", **flags})
    if call in (_mxfp4, _mxfp4_plain):
        rows = "bf16" if call is _mxfp4_plain else "default"
        deployment = _deployment(**flags).asking(flashinfer_mxfp4_moe_precision=rows)
    asked = _serve(deployment, call, tuner)
    experts = [op for op in expected_keys(deployment) if op.op not in ("fp8_gemm", "fp4_gemm")]
    assert {key: op.policy for op in experts for key in op.keys} == asked


def test_fp8_experts_that_are_chosen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MiniMax-M2's, by sigmoids and a correction: no kernel chooses so."""
    config = {**published()["MiniMaxAI/MiniMax-M2"].config, "quantization_config": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    install_trtllm_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    flags = {"moe_runner_backend": "flashinfer_trtllm", "quantization": "modelopt_fp8", "tp": 4}
    deployment = _deployment(model_path=str(tmp_path), **flags)
    asked = _serve(deployment, _fp8_tensor_routed, tuner)
    experts = [op for op in expected_keys(deployment) if op.op != "fp8_gemm"]
    assert {key: op.policy for op in experts for key in op.keys} == asked


def _fp4_chosen(deployment: Deployment, rows: int, group: int, pad: int) -> None:
    """As DeepSeek-V4's layers call: each is given its experts, whether by a hash or by scores."""
    h, e, _, k, _ = _sizes(deployment)
    common = _common(deployment, rows, pad)
    ids, i = _meta(rows, k, dtype=INT32), common["intermediate_size"]
    apart = (ids, _meta(rows, k, dtype=torch.float32))
    fused_moe.trtllm_fp4_block_scale_routed_moe(
        topk_ids=apart if deployment.server.release.routes_apart else ids,
        routing_bias=None,
        hidden_states=_meta(rows, h, dtype=FP8) if group == 32 else _meta(rows, h // 2, dtype=FP4),
        hidden_states_scale=_meta(rows, h // group, dtype=FP8),
        gemm1_weights=_meta(e, 2 * i, h // 2, dtype=FP4),
        gemm1_weights_scale=_meta(e, 2 * i, h // group, dtype=FP8),
        gemm1_bias=None,
        gemm1_alpha=None,
        gemm1_beta=None,
        gemm1_clamp_limit=_meta(e, dtype=torch.float32),
        gemm2_weights=_meta(e, h, i // 2, dtype=FP4),
        gemm2_weights_scale=_meta(e, h, i // group, dtype=FP8),
        gemm2_bias=None,
        **dict.fromkeys(_OUTPUT_SCALES, _meta(e, dtype=torch.float32)),
        do_finalize=True,
        output=_meta(rows, h),
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
    deployment = _deployment(model_path=folder_of(config, tmp_path), **flags)
    _assert_planned(deployment, _serve(deployment, call, tuner))


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
@pytest.mark.parametrize("flags", [{"tp": 4}, {"tp": 8, "ep": 2}, {"tp": 4, "sglang_version": "0.5.19"}])
def test_deepseek_v4_on_cutlass(
    arch: str, flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = cutlass_module(monkeypatch)
    tuner = asking_tuner(monkeypatch)
    deployment = _deployment(model_path=folder_of(FLASH, tmp_path), arch=arch, **flags)
    on_hopper = arch == "sm90"
    weight, packed = (torch.uint8, 2) if on_hopper else (torch.int64, 16)

    def call(deployment: Deployment, rows: int) -> None:
        h, e, _, k, i = _sizes(deployment)
        module.cutlass_fused_moe(
            output=_meta(rows, h),
            input=_meta(rows, h, dtype=BF16 if on_hopper else FP8),
            token_selected_experts=_meta(rows, k, dtype=INT32),
            token_final_scales=_meta(rows, k, dtype=torch.float32),
            fc1_expert_weights=_meta(e, 2 * i, h // packed, dtype=weight),
            fc1_expert_biases=None,
            fc2_expert_weights=_meta(e, h, i // packed, dtype=weight),
            fc2_expert_biases=None,
            output_dtype=BF16,
            quant_scales=None,
            swiglu_limit=_meta(e, dtype=torch.float32),
            ep_size=deployment.parallel.moe_ep,
            tp_size=deployment.parallel.moe_tp,
            ep_rank=deployment.parallel.moe_ep - 1,
            tp_rank=deployment.parallel.moe_tp - 1,
            use_w4_group_scaling=on_hopper,
            use_mxfp8_act_scaling=not on_hopper,
            tune_max_num_tokens=_by_chunk(deployment, rows),
            use_fused_finalize=deployment.runtime.fused_finalize,
            enable_pdl=True,
        )

    _assert_planned(deployment, _serve(deployment, call, tuner))


def _by_chunk(deployment: Deployment, rows: int) -> int:
    if deployment.server.release.ranges_by_chunk:
        return min(batch_rows(deployment.server).prefill, 8192)
    return next_power_of_2(rows)


def test_our_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = asking_tuner(monkeypatch)
    deployment = resolve_deployment(ServerFlags(tp=8, dp=8, arch="cpu"), environ={})

    def call(deployment: Deployment, rows: int) -> None:
        h, e, total, k, i = _sizes(deployment)
        largest = _largest(deployment, rows)
        sizes = {"num_experts": total, "tune_max_num_tokens": largest}
        expert = torch.zeros(rows, k, dtype=torch.int64)
        grouped_gemm(GEMM1, _zeros(rows, h), expert, _zeros(e, 2 * i, h), **sizes)
        grouped_gemm(GEMM2, _zeros(rows, k, i), expert, _zeros(e, h, i), **sizes)

    _assert_planned(deployment, _serve(deployment, call, tuner))


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=BF16)
