"""FlashInfer's TRT-LLM MoE (Blackwell), called with SGLang's arguments, because they are in the cache keys.

bf16, fp8 in blocks and nvfp4. The kernel chooses experts from the router's logits, or gets them chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from runtime.forward.kv_packing import FP8_MAX
from runtime.moe.flashinfer_call import call_with
from runtime.moe.trtllm_layout import Kind, kind_of, lay_out
from runtime.moe.tuned import TunedBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.errors import ConfigError
from runtime.server.layer_config import MoEConfig
from runtime.server.sizes.call_rules import Routing, routing_form
from runtime.simulate.kernel import kernel

# FlashInfer's RoutingMethodType
_SOFTMAX, _RENORMALIZE, _DEEPSEEK, _TOP_K, _SIGMOID_RENORMALIZE, _SIGMOID = 0, 1, 2, 5, 6, 8
_SWIGLU = 3
_FP8_GROUP = 128
_KERNEL_MULTIPLE: dict[str, int] = {"bf16": 128, "fp8_block": 128}


class FlashInferTrtllmBackend(TunedBackend):
    name: ClassVar[str] = "flashinfer_trtllm"

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        if weights.w13_bias is not None:
            raise ConfigError(
                f"SGLang passes no expert biases to {self.runtime.kernels.moe}: use another backend"
            )
        if not weights.is_gated:
            raise ConfigError(
                f"--moe-runner-backend {self.runtime.kernels.moe}: this runtime has no layout of "
                "experts without gates: flashinfer_cutlass takes them"
            )
        return lay_out(weights)

    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        return trtllm_moe(x, topk, weights, self._call(weights, x.shape[0]))

    def _call(self, weights: ExpertWeights, rows: int) -> Call:
        moe, kind = self.moe, kind_of(weights)
        inner = moe.intermediate_size // len(self.layout.group("moe_tp"))
        multiple = _KERNEL_MULTIPLE.get(kind, 64)
        sizes = (len(self.layout.group(one)) for one in ("moe_ep", "attn_dp"))
        routing = routing_form(self.model, self.runtime, kind == "fp8_block", *sizes)
        return Call(moe, kind, routing, -(-inner // multiple) * multiple, self.tune_max(rows))


class Call(NamedTuple):
    """What a call needs besides tensors. `intermediate` is one rank's size, padded for the kernel."""

    moe: MoEConfig
    kind: Kind
    routing: Routing
    intermediate: int
    tune_max: int


def _products(x: torch.Tensor, topk: TopK, weights: ExpertWeights, call: Call) -> Sequence[int]:
    """Return the buffers of both products, with each expert's slots padded to a tile; fp8 has one more."""
    slots, experts, inner = topk.ids.numel(), weights.num_experts, call.intermediate
    tile = min(128, max(8, 1 << (slots // experts).bit_length()))
    padded = slots + min(slots, experts) * (tile - 1)
    first = {"bf16": [2 * inner], "fp8_block": [2 * inner, inner], "nvfp4": [inner]}[call.kind]
    return [padded * width for width in (*first, 2 * x.shape[1])]


@kernel(lambda x, *_: torch.empty_like(x), _products)
def trtllm_moe(x: torch.Tensor, topk: TopK, weights: ExpertWeights, call: Call) -> torch.Tensor:
    from flashinfer import fused_moe

    moe, kind, routing_method = call.moe, call.kind, _routing_method(call.moe)
    n_group, topk_group = (moe.num_groups, moe.top_k_groups) if moe.scoring == "sigmoid" else (None, None)
    arguments: dict[str, Any] = {
        "gemm1_weights": weights.w13,
        "gemm2_weights": weights.w2,
        "num_experts": weights.num_experts,
        "n_group": n_group,
        "topk_group": topk_group,
        "intermediate_size": call.intermediate,
        "local_expert_offset": weights.first,
        "local_num_experts": weights.local,
        "routed_scaling_factor": moe.routed_scaling_factor,
        "tune_max_num_tokens": call.tune_max,
        "activation_type": _SWIGLU,
        "top_k": topk.ids.shape[1],
    }
    if kind != "bf16":
        arguments |= dict.fromkeys(("gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit"))
    if call.routing == "logits":
        # Only DeepSeek's routing reads fp32 logits.
        taken = topk.logits if routing_method == _DEEPSEEK else topk.logits.to(torch.bfloat16)
        arguments |= {"routing_logits": taken, "routing_bias": topk.correction}
        arguments["routing_method_type"] = routing_method
    else:
        method = _TOP_K if routing_method == _DEEPSEEK else routing_method
        arguments |= {"topk_ids": (topk.ids, topk.weights), "n_group": None, "topk_group": None}
        arguments["routing_method_type"] = method
        if kind != "bf16":
            arguments["routing_bias"] = None
        if kind == "nvfp4":
            arguments |= {
                "n_group": 0,
                "topk_group": 0,
                "routed_scaling_factor": None,
                "routing_method_type": 1,
            }
    stem, operands = _CALLS[kind]
    routed = "" if call.routing == "logits" else "routed_"
    function = getattr(fused_moe, f"trtllm_{stem}_{routed}moe")
    return call_with(function, arguments | operands(x, weights))


def _bf16(x: torch.Tensor, weights: ExpertWeights) -> dict[str, Any]:
    return {"hidden_states": x, "do_finalize": True}


def _fp8_block(x: torch.Tensor, weights: ExpertWeights) -> dict[str, Any]:
    from flashinfer.fused_moe import Fp8QuantizationType

    quantized, scale = quantize_groups(x)
    return {
        "hidden_states": quantized,
        "hidden_states_scale": scale,
        "gemm1_weights_scale": weights.w13_scale,
        "gemm2_weights_scale": weights.w2_scale,
        "use_shuffled_weight": False,
        "weight_layout": 0,
        "enable_pdl": None,
        "output": torch.empty(x.shape, dtype=x.dtype, device=x.device),
        "fp8_quantization_type": Fp8QuantizationType.DeepSeekFp8,
    }


def _nvfp4(x: torch.Tensor, weights: ExpertWeights) -> dict[str, Any]:
    given = weights.w13_scale, weights.w2_scale, weights.w13_global_scale, weights.w2_input_scale
    w13_scale, w2_scale, w13_factor, w2_input = given
    assert w13_scale is not None and w2_scale is not None and w13_factor is not None and w2_input is not None
    quantized, scale = quantize_nvfp4(x, weights.w13_input_scale)
    return {
        "hidden_states": quantized,
        "hidden_states_scale": scale,
        "gemm1_weights_scale": w13_scale.view(torch.float8_e4m3fn),
        "gemm1_bias": None,
        "gemm2_weights_scale": w2_scale.view(torch.float8_e4m3fn),
        "gemm2_bias": None,
        "output1_scale_scalar": w2_input * w13_factor,
        "output1_scale_gate_scalar": w13_factor,
        "output2_scale_scalar": weights.w2_global_scale,
        "per_token_scale": None,
        "do_finalize": True,
        "output": torch.empty(x.shape, dtype=x.dtype, device=x.device),
    }


_CALLS = {
    "bf16": ("bf16", _bf16),
    "fp8_block": ("fp8_block_scale", _fp8_block),
    "nvfp4": ("fp4_block_scale", _nvfp4),
}


def quantize_groups(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize to fp8 in groups of 128 along k; return scales as [k / 128, rows], the kernel's order."""
    groups = x.float().unflatten(1, (-1, _FP8_GROUP))
    scale = groups.abs().amax(dim=-1).clamp_(min=1e-10) / FP8_MAX
    quantized = (groups / scale.unsqueeze(-1)).clamp_(-FP8_MAX, FP8_MAX)
    return quantized.flatten(1).to(torch.float8_e4m3fn), scale.t().contiguous()


def _packed(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, width = x.shape
    packed = x.new_empty(rows, width // 2, dtype=torch.uint8)
    return packed, x.new_empty(rows, width // 16, dtype=torch.float8_e4m3fn)


@kernel(_packed)
def quantize_nvfp4(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack two values per byte, with one e4m3 scale per 16. `scale` is the calibrated scale's reciprocal."""
    from flashinfer import fp4_quantize

    packed, scales = fp4_quantize(x, scale, 16, False, False)
    rows, width = x.shape
    return packed.reshape(rows, width // 2), scales.view(torch.float8_e4m3fn).reshape(rows, width // 16)


def _routing_method(moe: MoEConfig) -> int:
    if moe.scoring == "softmax":
        return _RENORMALIZE if moe.renormalize else _SOFTMAX
    if moe.correction_bias:
        return _DEEPSEEK
    return _SIGMOID_RENORMALIZE if moe.renormalize else _SIGMOID
