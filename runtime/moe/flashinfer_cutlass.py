"""FlashInfer's CUTLASS MoE with the arguments SGLang passes: they are the cache keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch

from runtime.forward.logits_processor import in_autotune_dummy_run
from runtime.layers.fp8_gemm import quantize_fp8
from runtime.layers.opaque import opaque_op
from runtime.moe.flashinfer_call import call_with, forget_ranges
from runtime.moe.profile_workspace import ProfiledShape, hold_profile_workspace
from runtime.moe.trtllm_layout import swap_halves
from runtime.moe.tuned import TunedBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel import RankLayout


class FlashInferCutlassBackend(TunedBackend):
    """bf16, and fp8 with one scale per tensor. The kernel takes [up, gate] rows, or ups alone."""

    name: ClassVar[str] = "flashinfer_cutlass"
    _held: torch.Tensor | None = None

    def __init__(self, model: ModelConfig, runtime: RuntimeConfig, layout: RankLayout) -> None:
        super().__init__(model, runtime, layout)
        self._profiled: dict[ProfiledShape, int] = {}

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        if weights.w13.dtype not in (torch.bfloat16, torch.float16, torch.float8_e4m3fn) or weights.block:
            raise ConfigError(
                "--moe-runner-backend flashinfer_cutlass takes bf16 or modelopt_fp8 experts here: "
                "fp8 in blocks and fp4 run on flashinfer_trtllm"
            )
        if weights.w13_bias is not None:
            raise ConfigError("SGLang passes no expert biases to flashinfer_cutlass: use another backend")
        if weights.is_gated and not weights.w13.is_meta:
            with torch.no_grad():
                swap_halves(weights.w13)
        return _with_kernel_scales(weights) if weights.w13.dtype == torch.float8_e4m3fn else weights

    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        if x.is_meta and in_autotune_dummy_run() and not self.runtime.autotune_cached:
            self._hold_profile_workspace(x, topk, weights)
        return cutlass_moe(
            x,
            topk.ids,
            topk.weights,
            weights.w13,
            weights.w2,
            self._quant_scales(weights),
            list(weights.swiglu),
            len(self.layout.group("moe_tp")),
            self.layout.moe_tp_rank,
            len(self.layout.group("moe_ep")),
            self.layout.moe_ep_rank,
            self.tune_max(x.shape[0]),
            self.runtime.kernels.a2a == "flashinfer",
            weights.is_gated,
            weights.w13_bias,
            weights.w2_bias,
        )

    def _hold_profile_workspace(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> None:
        """A prediction tunes nothing, but takes the memory of it: once, for the first layer of its sizes."""
        tune_max = self.tune_max(x.shape[0])
        experts, hidden, inner = weights.w2.shape
        sizes = weights.w2.element_size(), x.element_size()
        shape = ProfiledShape(experts, hidden, inner, topk.ids.shape[1], *sizes)
        if tune_max > self._profiled.get(shape, 0):
            self._profiled[shape] = tune_max
            self._held = hold_profile_workspace(shape, tune_max)

    def _quant_scales(self, weights: ExpertWeights) -> list[torch.Tensor]:
        held = (weights.w13_scale, weights.w2_input_scale, weights.w2_scale, weights.w13_input_scale)
        return [scale for scale in held if scale is not None]


@opaque_op("sgl_tune::cutlass_moe", mutates_args=())
def cutlass_moe(
    x: torch.Tensor,
    ids: torch.Tensor,
    scores: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    quant_scales: list[torch.Tensor],
    swiglu: list[float],
    tp_size: int,
    tp_rank: int,
    ep_size: int,
    ep_rank: int,
    tune_max: int,
    alltoall: bool,
    gated: bool,
    w13_bias: torch.Tensor | None = None,
    w2_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Experts in bytes have four bits a weight, and a scale for each 32 of them."""
    from flashinfer.fused_moe import cutlass_fused_moe
    from flashinfer.fused_moe.core import ActivationType

    from runtime.autotune.layer import tuned_in
    from runtime.moe.layer_trial import cutlass_trial

    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    in_groups = w13.dtype == torch.uint8
    arguments: dict[str, Any] = {
        "output": out,
        "input": quantize_fp8(x, quant_scales[3]) if len(quant_scales) == 4 else x,
        "token_selected_experts": ids.to(torch.int),
        "token_final_scales": scores.to(torch.float32),
        "fc1_expert_weights": w13,
        "fc1_expert_biases": w13_bias,
        "fc2_expert_weights": w2,
        "fc2_expert_biases": w2_bias,
        "output_dtype": x.dtype,
        "input_sf": None,
        "quant_scales": quant_scales or None,
        "ep_size": ep_size,
        "ep_rank": ep_rank,
        "tp_size": tp_size,
        "tp_rank": tp_rank,
        "tune_max_num_tokens": tune_max,
        "activation_type": ActivationType.Swiglu if gated else ActivationType.Relu2,
        "enable_alltoall": alltoall,
        "use_fused_finalize": False,
        "use_w4_group_scaling": in_groups,
    }
    given = zip(("swiglu_alpha", "swiglu_limit"), swiglu, strict=False)
    for name, value in (*given, *([("swiglu_beta", 1.0)] if swiglu else ())):
        arguments[name] = torch.full((w13.shape[0],), value, dtype=torch.float32, device=x.device)
    forget_ranges()
    with tuned_in(cutlass_trial(cutlass_fused_moe, arguments)):
        return call_with(cutlass_fused_moe, arguments)


cutlass_moe.register_fake(lambda x, *_: torch.empty_like(x))


def _with_kernel_scales(weights: ExpertWeights) -> ExpertWeights:
    """What the kernel multiplies by: w13 and w2 scales with their input's folded in, 1 / w2's input scale."""
    scales = (weights.w13_scale, weights.w2_scale, weights.w13_input_scale, weights.w2_input_scale)
    w13_scale, w2_scale, w13_input, w2_input = (None if s is None else s.float() for s in scales)
    if w13_scale is None or w2_scale is None or w13_input is None or w2_input is None:
        raise ConfigError("fp8 experts on flashinfer_cutlass need calibrated input scales (modelopt_fp8)")
    w13_input, w2_input = w13_input.max(), w2_input.max()
    return replace(
        weights,
        w13_scale=w13_scale * w13_input,
        w2_scale=w2_scale * w2_input,
        w13_input_scale=w13_input,
        w2_input_scale=w2_input.reciprocal(),
    )
