"""FlashInfer's TRT-LLM MoE kernels (Blackwell) with the arguments SGLang passes: they are the cache keys.

bf16, fp8 in blocks and nvfp4; experts chosen by the kernel from router logits, or before it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runtime.forward.kv_packing import FP8_MAX
from runtime.layers.opaque import opaque_op
from runtime.moe.flashinfer_call import call_with
from runtime.moe.trtllm_layout import kind_of, lay_out
from runtime.moe.tuned import TunedBackend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.errors import ConfigError
from runtime.server.layer_config import MoEConfig
from runtime.server.sizes.call_rules import routing_form

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
        moe, kind = self.moe, kind_of(weights)
        groups = [moe.num_groups, moe.top_k_groups] if moe.scoring == "sigmoid" else []
        inner = moe.intermediate_size // len(self.layout.group("moe_tp"))
        multiple = _KERNEL_MULTIPLE.get(kind, 64)
        sizes = (len(self.layout.group(one)) for one in ("moe_ep", "attn_dp"))
        return trtllm_moe(
            x,
            topk.ids,
            topk.weights,
            topk.logits,
            topk.correction,
            weights.w13,
            weights.w2,
            _scales(weights),
            kind,
            routing_form(self.model, self.runtime, kind == "fp8_block", *sizes),
            _routing_method(moe),
            groups,
            weights.num_experts,
            weights.first,
            -(-inner // multiple) * multiple,
            moe.routed_scaling_factor,
            self.tune_max(x.shape[0]),
        )


@opaque_op("sgl_tune::trtllm_moe", mutates_args=())
def trtllm_moe(
    x: torch.Tensor,
    ids: torch.Tensor,
    scores: torch.Tensor,
    logits: torch.Tensor,
    correction: torch.Tensor | None,
    w13: torch.Tensor,
    w2: torch.Tensor,
    scales: list[torch.Tensor],
    kind: str,
    routing: str,
    routing_method: int,
    groups: list[int],
    num_experts: int,
    first: int,
    intermediate: int,
    scaling: float,
    tune_max: int,
) -> torch.Tensor:
    from flashinfer import fused_moe

    arguments: dict[str, Any] = {
        "gemm1_weights": w13,
        "gemm2_weights": w2,
        "num_experts": num_experts,
        "n_group": groups[0] if groups else None,
        "topk_group": groups[1] if groups else None,
        "intermediate_size": intermediate,
        "local_expert_offset": first,
        "local_num_experts": w13.shape[0],
        "routed_scaling_factor": scaling,
        "tune_max_num_tokens": tune_max,
        "activation_type": _SWIGLU,
        "top_k": ids.shape[1],
    }
    if kind != "bf16":
        arguments |= dict.fromkeys(("gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit"))
    if routing == "logits":
        # Only DeepSeek's routing reads fp32 logits.
        taken = logits if routing_method == _DEEPSEEK else logits.to(torch.bfloat16)
        arguments |= {"routing_logits": taken, "routing_bias": correction}
        arguments["routing_method_type"] = routing_method
    else:
        method = _TOP_K if routing_method == _DEEPSEEK else routing_method
        arguments |= {"topk_ids": (ids, scores), "n_group": None, "topk_group": None}
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
    function = getattr(
        fused_moe, f"trtllm_{stem}_moe" if routing == "logits" else f"trtllm_{stem}_routed_moe"
    )
    return call_with(function, arguments | operands(x, scales))


trtllm_moe.register_fake(lambda x, *_: torch.empty_like(x))


def _bf16(x: torch.Tensor, scales: list[torch.Tensor]) -> dict[str, Any]:
    return {"hidden_states": x, "do_finalize": True}


def _fp8_block(x: torch.Tensor, scales: list[torch.Tensor]) -> dict[str, Any]:
    from flashinfer.fused_moe import Fp8QuantizationType

    quantized, scale = quantize_groups(x)
    return {
        "hidden_states": quantized,
        "hidden_states_scale": scale,
        "gemm1_weights_scale": scales[0],
        "gemm2_weights_scale": scales[1],
        "use_shuffled_weight": False,
        "weight_layout": 0,
        "enable_pdl": None,
        "output": torch.empty(x.shape, dtype=x.dtype, device=x.device),
        "fp8_quantization_type": Fp8QuantizationType.DeepSeekFp8,
    }


def _nvfp4(x: torch.Tensor, scales: list[torch.Tensor]) -> dict[str, Any]:
    w13_scale, w2_scale, w13_factor, w2_factor, w13_input, w2_input = scales
    quantized, scale = quantize_nvfp4(x, w13_input)
    return {
        "hidden_states": quantized,
        "hidden_states_scale": scale,
        "gemm1_weights_scale": w13_scale.view(torch.float8_e4m3fn),
        "gemm1_bias": None,
        "gemm2_weights_scale": w2_scale.view(torch.float8_e4m3fn),
        "gemm2_bias": None,
        "output1_scale_scalar": w2_input * w13_factor,
        "output1_scale_gate_scalar": w13_factor,
        "output2_scale_scalar": w2_factor,
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
    """fp8 in groups of 128 along k; scales [k / 128, rows], as the kernel reads them."""
    groups = x.float().unflatten(1, (-1, _FP8_GROUP))
    scale = groups.abs().amax(dim=-1).clamp_(min=1e-10) / FP8_MAX
    quantized = (groups / scale.unsqueeze(-1)).clamp_(-FP8_MAX, FP8_MAX)
    return quantized.flatten(1).to(torch.float8_e4m3fn), scale.t().contiguous()


@opaque_op("sgl_tune::quantize_nvfp4", mutates_args=())
def quantize_nvfp4(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two values a byte, one e4m3 scale for sixteen. `scale` is the reciprocal of the calibrated one."""
    from flashinfer import fp4_quantize

    packed, scales = fp4_quantize(x, scale, 16, False, False)
    rows, width = x.shape
    return packed.reshape(rows, width // 2), scales.view(torch.float8_e4m3fn).reshape(rows, width // 16)


@quantize_nvfp4.register_fake
def _(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows, width = x.shape
    packed = x.new_empty(rows, width // 2, dtype=torch.uint8)
    return packed, x.new_empty(rows, width // 16, dtype=torch.float8_e4m3fn)


def _routing_method(moe: MoEConfig) -> int:
    if moe.scoring == "softmax":
        return _RENORMALIZE if moe.renormalize else _SOFTMAX
    if moe.correction_bias:
        return _DEEPSEEK
    return _SIGMOID_RENORMALIZE if moe.renormalize else _SIGMOID


def _scales(weights: ExpertWeights) -> list[torch.Tensor]:
    held = (
        weights.w13_scale,
        weights.w2_scale,
        weights.w13_global_scale,
        weights.w2_global_scale,
        weights.w13_input_scale,
        weights.w2_input_scale,
    )
    return [scale for scale in held if scale is not None]
