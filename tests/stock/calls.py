"""The calls that SGLang makes of FlashInfer's MoE ops, on meta tensors, and what a plan says of them."""

from collections.abc import Callable
from typing import Any

import torch
from flashinfer import fused_moe
from flashinfer.tllm_enums import Fp8QuantizationType
from torch import Tensor

from runtime.autotune.installed import WAYS
from runtime.server.buckets import next_power_of_2, tuning_range
from runtime.server.sizes.batches import batch_rows
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import expected_keys
from tests.sgl_tune.modelopt import as_checkpoint
from tests.stock.kernel_stubs import AskingTuner

_NO_FP4 = (
    "routing_bias", "gemm1_bias", "gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit", "gemm2_bias",
    "output1_scale_scalar", "output1_scale_gate_scalar", "output2_scale_scalar",
)  # fmt: skip
FP8, FP4, BF16, INT32 = torch.float8_e4m3fn, torch.uint8, torch.bfloat16, torch.int32
Call = Callable[[Deployment, int], None]


def meta(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def deployment_of(**flags: Any) -> Deployment:
    target = {"flashinfer_version": "0.7.2", "arch": "sm100"}
    return resolve_deployment(ServerFlags.of(**as_checkpoint({**target, **flags})))


def largest_of(deployment: Deployment, rows: int) -> int:
    server = deployment.server
    prefill = batch_rows(server).prefill
    return tuning_range(server.backend, rows, prefill)


def sizes_of(deployment: Deployment) -> tuple[int, int, int, int, int]:
    """hidden, experts of one rank, all experts, top k, a rank's intermediate size."""
    moe, parallel = deployment.model.moe, deployment.parallel
    assert moe is not None
    local = moe.num_experts // parallel.moe_ep
    intermediate = moe.intermediate_size // parallel.moe_tp
    return deployment.model.hidden_size, local, moe.num_experts, moe.top_k, intermediate


def serve(deployment: Deployment, call: Call, tuner: AskingTuner) -> dict[str, tuple[Any, ...]]:
    """Every bucket's own row count, and rows between the buckets, up to the largest batch."""
    largest = batch_rows(deployment.server).serving
    buckets = {bucket for op in expected_keys(deployment) for bucket in op.buckets}
    between = {bucket - 1 for bucket in buckets if bucket > 2} | {largest}
    for rows in sorted(buckets | between):
        call(deployment, rows)
    return tuner.asked


def planned_experts(deployment: Deployment, least: int = 0) -> dict[str, tuple[Any, ...] | None]:
    """The policy of every key, of buckets of so many rows and more, that is not a dense GEMM's."""
    return {
        entry.key: op.policy if WAYS.keeps_policies else None
        for op in expected_keys(deployment)
        for entry in op.entries
        if entry.bucket >= least and op.op not in ("fp8_gemm", "fp4_gemm", "mxfp8_gemm")
    }


def assert_planned(deployment: Deployment, asked: dict[str, tuple[Any, ...]]) -> None:
    planned = {key: op.policy for op in expected_keys(deployment) for key in op.keys}
    assert planned == asked


def padded_to(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def common_arguments(deployment: Deployment, rows: int, pad: int) -> dict[str, Any]:
    """What SGLang passes to every trtllm MoE."""
    _, local, total, top_k, intermediate = sizes_of(deployment)
    return {
        "num_experts": total,
        "top_k": top_k,
        "n_group": None,
        "topk_group": None,
        "intermediate_size": padded_to(intermediate, pad),
        "local_expert_offset": 0,
        "local_num_experts": local,
        "routed_scaling_factor": 1.0,
        "routing_method_type": 1,
        "tune_max_num_tokens": next_power_of_2(rows),
        "enable_pdl": True,
    }


def fp8_block(deployment: Deployment, rows: int, routed: bool = False) -> None:
    h, e, total, k, _ = sizes_of(deployment)
    common = common_arguments(deployment, rows, 128)
    i = common["intermediate_size"]
    tensors = {
        "routing_bias": None,
        "hidden_states": meta(rows, h, dtype=FP8),
        "hidden_states_scale": meta(h // 128, rows, dtype=torch.float32),
        "gemm1_weights": meta(e, 2 * i, h, dtype=FP8),
        "gemm1_weights_scale": meta(e, 2 * i // 128, h // 128, dtype=torch.float32),
        "gemm2_weights": meta(e, h, i, dtype=FP8),
        "gemm2_weights_scale": meta(e, h // 128, i // 128, dtype=torch.float32),
        "output": meta(rows, h),
        "use_shuffled_weight": False,
        "fp8_quantization_type": Fp8QuantizationType.DeepSeekFp8,
    }
    if not routed:
        logits = meta(rows, total, dtype=torch.float32)
        fused_moe.trtllm_fp8_block_scale_moe(routing_logits=logits, **tensors, **common)
        return
    topk = meta(rows, k, dtype=INT32), meta(rows, k, dtype=torch.float32)
    fused_moe.trtllm_fp8_block_scale_routed_moe(topk_ids=topk, **tensors, **common)


def fp8_block_routed(deployment: Deployment, rows: int) -> None:
    fp8_block(deployment, rows, routed=True)


def bf16(deployment: Deployment, rows: int, routed: bool = False) -> None:
    h, e, total, k, _ = sizes_of(deployment)
    common = common_arguments(deployment, rows, 128)
    i = common["intermediate_size"]
    tensors = {
        "hidden_states": meta(rows, h),
        "gemm1_weights": meta(e, h // 64, 2 * i, 64),
        "gemm2_weights": meta(e, i // 64, h, 64),
    }
    if routed:
        topk = meta(rows, k, dtype=INT32), meta(rows, k)
        fused_moe.trtllm_bf16_routed_moe(topk_ids=topk, **tensors, **common)
    else:
        logits = meta(rows, total)
        fused_moe.trtllm_bf16_moe(routing_logits=logits, routing_bias=None, **tensors, **common)


def bf16_routed(deployment: Deployment, rows: int) -> None:
    bf16(deployment, rows, routed=True)


def fp4(
    deployment: Deployment, rows: int, *, x: Tensor, x_scale: Tensor | None, group: int, out: Tensor
) -> None:
    _, e, total, _, _ = sizes_of(deployment)
    common = common_arguments(deployment, rows, 128 if group == 32 else 16)
    i, h = common["intermediate_size"], x.shape[1] * (2 if x.dtype == FP4 else 1)
    fused_moe.trtllm_fp4_block_scale_moe(
        routing_logits=meta(rows, total),
        hidden_states=x,
        hidden_states_scale=x_scale,
        gemm1_weights=meta(e, 2 * i, h // 2, dtype=FP4),
        gemm1_weights_scale=meta(e, 2 * i, h // group, dtype=FP8),
        gemm2_weights=meta(e, h, i // 2, dtype=FP4),
        gemm2_weights_scale=meta(e, h, i // group, dtype=FP8),
        do_finalize=True,
        output=out,
        **dict.fromkeys(_NO_FP4),
        **common,
    )


def nvfp4(deployment: Deployment, rows: int) -> None:
    h = deployment.model.hidden_size
    packed = {"x": meta(rows, h // 2, dtype=FP4), "x_scale": meta(rows, h // 16, dtype=FP8), "group": 16}
    fp4(deployment, rows, **packed, out=meta(rows, h))


def mxfp4(deployment: Deployment, rows: int) -> None:
    padded = padded_to(deployment.model.hidden_size, 256)
    x = {"x": meta(rows, padded, dtype=FP8), "x_scale": meta(rows, padded // 32, dtype=FP8), "group": 32}
    fp4(deployment, rows, **x, out=meta(rows, deployment.model.hidden_size))
