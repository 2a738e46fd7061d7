"""FlashInfer's TRT-LLM MoE kernels (Blackwell) with the arguments SGLang passes: they are the cache keys.

bf16, fp8 in blocks and nvfp4; experts chosen by the kernel from router logits, or before it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from runtime.forward.kv_packing import FP8_MAX
from runtime.layers.norm import weighed_norm
from runtime.layers.opaque import opaque_op
from runtime.moe.flashinfer_call import call_with
from runtime.moe.trtllm_layout import kind_of, lay_out
from runtime.moe.tuned import TunedBackend, swiglu_values
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.buckets import OF_FLASHINFER
from runtime.server.call_rules import routing_form
from runtime.server.errors import ConfigError
from runtime.server.layer_config import MoEConfig

# FlashInfer's RoutingMethodType
_SOFTMAX, _RENORMALIZE, _DEEPSEEK, _TOP_K, _SIGMOID_RENORMALIZE, _SIGMOID = 0, 1, 2, 5, 6, 8
_SWIGLU, _GEGLU = 3, 4
_FP8_GROUP = 128
_KERNEL_MULTIPLE: dict[str, int] = {"bf16": 128, "fp8_block": 128}


class FlashInferTrtllmBackend(TunedBackend):
    name: ClassVar[str] = "flashinfer_trtllm"
    takes_weighted_rows: ClassVar[bool] = False

    def prepare_for_gpu(self, weights: ExpertWeights) -> ExpertWeights:
        if weights.w13_bias is not None:
            raise ConfigError(
                f"SGLang passes no expert biases to {self.runtime.moe_runner_backend}: use another backend"
            )
        if not weights.is_gated:
            raise ConfigError(
                f"--moe-runner-backend {self.runtime.moe_runner_backend}: this runtime has no layout of "
                "experts without gates: flashinfer_cutlass takes them"
            )
        return lay_out(weights)

    def forward_on_gpu(self, x: torch.Tensor, topk: TopK, weights: ExpertWeights) -> torch.Tensor:
        moe = self.model.moe
        assert moe is not None
        kind = kind_of(weights)
        groups = [moe.num_groups, moe.top_k_groups] if moe.scoring == "sigmoid" else []
        inner = moe.intermediate_size // len(self.layout.group("moe_tp"))
        multiple = _KERNEL_MULTIPLE.get(kind, self.runtime.release.nvfp4_trtllm_rows)
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
            routing_form(
                self.model,
                self.runtime,
                kind == "fp8_block",
                len(self.layout.group("moe_ep")),
                len(self.layout.group("attn_dp")),
            ),
            _routing_method(moe),
            groups,
            weights.num_experts,
            weights.first,
            -(-inner // multiple) * multiple,
            moe.routed_scaling_factor,
            swiglu_values(weights),
            self.tune_max(x.shape[0]),
            bool(weights.gelu),
            *(weights.answer_norm or ()),
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
    swiglu: list[float],
    tune_max: int,
    gelu: bool = False,
    answer_weight: torch.Tensor | None = None,
    answer_eps: float = 0.0,
) -> torch.Tensor:
    """With the weights of a norm each expert's answer is normed, and they are added here."""
    call = {"bf16": _bf16, "fp8_block": _fp8_block, "nvfp4": _nvfp4}[kind]
    names = ("gemm1_alpha", "gemm1_beta", "gemm1_clamp_limit")
    values = [torch.full((w13.shape[0],), v, dtype=torch.float32, device=x.device) for v in swiglu]
    activation = dict(zip(names, values, strict=True)) if values else dict.fromkeys(names)
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
        "activation_type": _GEGLU if gelu else _SWIGLU,
        "top_k": ids.shape[1],
    }
    if kind != "bf16":
        arguments.update(activation)
    if routing == "logits":
        # Only DeepSeek's routing reads fp32 logits.
        taken = logits if routing_method == _DEEPSEEK else logits.to(torch.bfloat16)
        arguments.update(routing_logits=taken, routing_bias=correction, routing_method_type=routing_method)
    else:
        method = _TOP_K if routing_method == _DEEPSEEK else routing_method
        arguments.update(
            topk_ids=pack(ids, scores) if routing == "packed" else (ids, scores),
            n_group=None,
            topk_group=None,
            routing_method_type=method,
        )
        if kind != "bf16":
            arguments["routing_bias"] = None
    if answer_weight is None:
        return call(x, scales, routing, arguments)
    arguments |= {"do_finalize": False, "routed_scaling_factor": 1.0}
    if kind == "nvfp4":
        arguments["tune_max_num_tokens"] = OF_FLASHINFER
    answers, shares, places = call(x, scales, routing, arguments)[:3]
    if x.is_meta:
        return torch.empty_like(x)
    return summed(weighed_norm(answers, answer_weight, answer_eps), shares, places, x)


@trtllm_moe.register_fake
def _(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x)


def _bf16(
    x: torch.Tensor, scales: list[torch.Tensor], routing: str, arguments: dict[str, Any]
) -> torch.Tensor:
    from flashinfer.fused_moe import trtllm_bf16_moe, trtllm_bf16_routed_moe

    call = trtllm_bf16_moe if routing == "logits" else trtllm_bf16_routed_moe
    return call(hidden_states=x, **{"do_finalize": True, **arguments})


def _fp8_block(
    x: torch.Tensor, scales: list[torch.Tensor], routing: str, arguments: dict[str, Any]
) -> torch.Tensor:
    from flashinfer.fused_moe import (
        Fp8QuantizationType,
        trtllm_fp8_block_scale_moe,
        trtllm_fp8_block_scale_routed_moe,
    )

    call = trtllm_fp8_block_scale_moe if routing == "logits" else trtllm_fp8_block_scale_routed_moe
    quantized, scale = quantize_groups(x)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    arguments |= {
        "hidden_states": quantized,
        "hidden_states_scale": scale,
        "gemm1_weights_scale": scales[0],
        "gemm2_weights_scale": scales[1],
        "use_shuffled_weight": False,
        "weight_layout": 0,
        "enable_pdl": None,
        "output": out,
        "fp8_quantization_type": Fp8QuantizationType.DeepSeekFp8,
    }
    return call_with(call, arguments)


def _nvfp4(
    x: torch.Tensor, scales: list[torch.Tensor], routing: str, arguments: dict[str, Any]
) -> torch.Tensor:
    from flashinfer.fused_moe import trtllm_fp4_block_scale_moe, trtllm_fp4_block_scale_routed_moe

    w13_scale, w2_scale, w13_factor, w2_factor, w13_input, w2_input = scales
    quantized, scale = quantize_nvfp4(x, w13_input)
    finishes = arguments.get("do_finalize", True)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if routing == "logits":
        call = trtllm_fp4_block_scale_moe
    else:
        call = trtllm_fp4_block_scale_routed_moe
        arguments |= {"n_group": 0, "topk_group": 0, "routed_scaling_factor": None, "routing_method_type": 1}
    arguments |= {
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
        "do_finalize": finishes,
        **({"output": out} if finishes else {}),
    }
    return call_with(call, arguments)


def summed(
    answers: torch.Tensor, shares: torch.Tensor, places: torch.Tensor, like: torch.Tensor
) -> torch.Tensor:
    """Each token's answers stand at their places, and elsewhere are none of this rank's: -1."""
    rows, top_k = like.shape[0], places.numel() // max(1, like.shape[0])
    places = places.view(rows, top_k).long()
    chosen = answers[places.clamp(min=0)].float() * shares.view(rows, top_k, 1).float()
    return chosen.masked_fill(places[..., None] < 0, 0.0).sum(dim=1).to(like.dtype)


def pack(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """An expert's number and its bf16 weight in one int32."""
    bits = scores.to(torch.bfloat16).view(torch.int16).to(torch.int32) & 0xFFFF
    return (ids.to(torch.int32) << 16) | bits


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
