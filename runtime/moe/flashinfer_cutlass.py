"""FlashInfer's CUTLASS MoE, called with the arguments SGLang passes, because they are in the cache keys."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from runtime.forward.logits_processor import in_autotune_dummy_run
from runtime.layers.gemms import quantize_fp8
from runtime.moe.flashinfer_call import call_with, forget_ranges
from runtime.moe.trtllm_layout import swap_halves
from runtime.moe.tuned import TunedBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.buckets import tuning_buckets
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.parallel import RankLayout
from runtime.simulate.kernel import kernel


class FlashInferCutlassBackend(TunedBackend):
    """bf16, and fp8 with one scale per tensor. The kernel reads [up, gate] rows, or only up rows."""

    name: ClassVar[str] = "flashinfer_cutlass"
    _held: torch.Tensor | None = None

    def __init__(self, model: ModelConfig, runtime: RuntimeConfig, layout: RankLayout) -> None:
        super().__init__(model, runtime, layout)
        self._profiled: dict[ProfiledShape, int] = {}

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        if weights.w13.dtype not in (torch.bfloat16, torch.float16, torch.float8_e4m3fn) or weights.block:
            has = "the core has it for bf16 and modelopt_fp8 experts alone"
            raise Unsupported(f"--moe-runner-backend flashinfer_cutlass: {has}")
        if weights.w13_bias is not None:
            raise ConfigError("SGLang passes no expert biases to flashinfer_cutlass: use another backend")
        if weights.is_gated and not weights.w13.is_meta:
            with torch.no_grad():
                swap_halves(weights.w13)
        return _with_kernel_scales(weights) if weights.w13.dtype == torch.float8_e4m3fn else weights

    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        if x.is_meta and in_autotune_dummy_run() and not self.runtime.autotune_cached:
            self._hold_profile_workspace(x, topk, weights)
        tune_max, alltoall = self.tune_max(x.shape[0]), self.runtime.kernels.a2a == "flashinfer"
        return cutlass_moe(x, topk, weights, self.layout, tune_max, alltoall)

    def _hold_profile_workspace(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> None:
        """Allocate what tuning would, once per layer size: a prediction must count it without tuning."""
        tune_max = self.tune_max(x.shape[0])
        experts, hidden, inner = weights.w2.shape
        sizes = weights.w2.element_size(), x.element_size()
        shape = ProfiledShape(experts, hidden, inner, topk.ids.shape[1], *sizes)
        if tune_max > self._profiled.get(shape, 0):
            self._profiled[shape] = tune_max
            self._held = hold_profile_workspace(shape, tune_max)


def _buffers(x: torch.Tensor, topk: TopK, weights: ExpertWeights, *_: Any) -> Sequence[int]:
    """Return the kernel's one buffer: inputs and outputs of the larger product, and maps to rows."""
    tokens, top_k = topk.ids.shape
    experts, double, hidden = weights.w13.shape
    slots, itemsize, out_size = tokens * top_k, weights.w13.element_size(), x.element_size()
    inputs = slots * max(hidden * max(itemsize, out_size), double // 2 * itemsize)
    outputs = slots * max(double, hidden) * out_size
    return [inputs + outputs + 4 * (4 * slots + experts * tokens)]


@kernel(lambda x, *_: torch.empty_like(x), _buffers)
def cutlass_moe(
    x: torch.Tensor, topk: TopK, weights: ExpertWeights, layout: RankLayout, tune_max: int, alltoall: bool
) -> torch.Tensor:
    """Run the kernel. Experts stored as bytes have four bits per weight and one scale per 32 weights."""
    from flashinfer.fused_moe import cutlass_fused_moe
    from flashinfer.fused_moe.core import ActivationType

    from runtime.autotune.layer import tuned_in
    from runtime.moe.layer_trial import cutlass_trial

    scales = weights.w13_scale, weights.w2_input_scale, weights.w2_scale, weights.w13_input_scale
    quant_scales = [scale for scale in scales if scale is not None]
    arguments: dict[str, Any] = {
        "output": torch.empty(x.shape, dtype=x.dtype, device=x.device),
        "input": quantize_fp8(x, quant_scales[3]) if len(quant_scales) == 4 else x,
        "token_selected_experts": topk.ids.to(torch.int),
        "token_final_scales": topk.weights.to(torch.float32),
        "fc1_expert_weights": weights.w13,
        "fc1_expert_biases": weights.w13_bias,
        "fc2_expert_weights": weights.w2,
        "fc2_expert_biases": weights.w2_bias,
        "output_dtype": x.dtype,
        "input_sf": None,
        "quant_scales": quant_scales or None,
        "ep_size": len(layout.group("moe_ep")),
        "ep_rank": layout.moe_ep_rank,
        "tp_size": len(layout.group("moe_tp")),
        "tp_rank": layout.moe_tp_rank,
        "tune_max_num_tokens": tune_max,
        "activation_type": ActivationType.Swiglu if weights.is_gated else ActivationType.Relu2,
        "enable_alltoall": alltoall,
        "use_fused_finalize": False,
        "use_w4_group_scaling": weights.w13.dtype == torch.uint8,
    }
    given = zip(("swiglu_alpha", "swiglu_limit"), weights.swiglu, strict=False)
    for name, value in (*given, *([("swiglu_beta", 1.0)] if weights.swiglu else ())):
        arguments[name] = torch.full((weights.local,), value, dtype=torch.float32, device=x.device)
    forget_ranges()
    with tuned_in(cutlass_trial(cutlass_fused_moe, arguments)):
        return call_with(cutlass_fused_moe, arguments)


def _with_kernel_scales(weights: ExpertWeights) -> ExpertWeights:
    """Fold the input scales into those of w13 and w2, and invert w2's input scale, as the kernel uses it."""
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


_ROUTINGS = 16  # synthetic routings, each with its maps from slots to rows
_GEMM_VARIANTS = _ROUTINGS * 2 * 2 + 1  # each routing with and without fusion and swapped operands
_DESCRIPTORS = 22  # arrays of pointers, strides and shapes, an element an expert


@dataclass(frozen=True, slots=True)
class ProfiledShape:
    experts: int  # of this rank
    hidden: int
    intermediate: int
    top_k: int
    weight_bytes: int
    output_bytes: int

    def bytes(self, gemm: int, tokens: int) -> int:
        slots = tokens * self.top_k
        if gemm == 1:
            data = slots * (self.hidden + self.intermediate) * self.weight_bytes
            between = slots * 2 * self.intermediate * self.output_bytes
        else:
            data = slots * self.intermediate * self.weight_bytes + self.hidden * self.output_bytes
            between = slots * self.hidden * self.output_bytes
        maps = (3 * _ROUTINGS + 2) * slots * 4 + self.experts * tokens * 4
        pointers = _GEMM_VARIANTS * _DESCRIPTORS * (-(-self.experts * 16 // 128) * 128)
        return data + between + maps + pointers


def hold_profile_workspace(shape: ProfiledShape, tune_max: int) -> torch.Tensor:
    """Make the same allocations on meta, in the same order, and return the buffer that stays."""
    held = torch.empty(0, dtype=torch.int8, device="meta")
    for gemm in (1, 2):
        for tokens in tuning_buckets(tune_max):
            held = torch.empty(shape.bytes(gemm, tokens), dtype=torch.int8, device="meta")
    return held
