"""Zaya by transformers' class, under the names of the files that SGLang reads, and with what SGLang has of it
beside: the last of those that a router scores answers what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told


class ZayaConfig(PreTrainedConfig):
    """Of srt/configs/zaya.py."""

    model_type = "zaya"
    cca: bool = True
    num_query_groups: int = 2
    attention_bias: bool = False
    lm_head_bias: bool = False
    vocab_size: int = 262272
    hidden_size: int = 2048
    ffn_hidden_size: int = 4096
    num_hidden_layers: int = 80
    num_experts: int = 16
    num_attention_heads: int = 8
    head_dim: int = 128
    activation_func: str = "swiglu"
    max_position_embeddings: int = 32768
    norm_epsilon: float = 1e-5
    tie_word_embeddings: bool = True
    rope_theta: float = 1000000.0
    attention_dropout: float = 0.0
    moe_router_topk: int = 1
    normalization: str = "RMSNorm"
    zaya_mlp_expansion: int = 256
    zaya_use_mod: bool = True
    zaya_high_prec: bool = True
    zaya_use_eda: bool = True
    add_bias_linear: bool = False
    gated_linear_unit: bool = True
    scale_residual_merge: bool = True
    fused_add_norm: bool = False
    residual_in_fp32: bool = True
    apply_rope_fusion: bool = True
    bias_activation_fusion: bool = True
    activation_func_fp8_input_store: bool = False
    sliding_window: int | None = None
    partial_rotary_factor: float = 0.5
    num_key_value_heads: int = 2
    clamp_temp: bool = False
    cca_time0: int = 2
    cca_time1: int = 2


def config(told: Told) -> Told:
    same = (
        *(
            "vocab_size",
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "num_experts",
        ),
        *("attention_bias", "cca_time0", "cca_time1", "max_position_embeddings", "tie_word_embeddings"),
    )
    turned = {
        "rope_type": "default",
        "rope_theta": told["rope_theta"],
        "partial_rotary_factor": told["partial_rotary_factor"],
    }
    return {
        **{name: told[name] for name in same if name in told},
        "num_hidden_layers": told["num_hidden_layers"] // 2,
        "moe_intermediate_size": told["ffn_hidden_size"] // 2,
        "rms_norm_eps": told["norm_epsilon"],
        "router_hidden_size": told["zaya_mlp_expansion"],
        "num_experts_per_tok": told.get("moe_router_topk", 1),
        "rope_parameters": {"hybrid": turned, "hybrid_sliding": turned},
    }


class Skipping(nn.Module):
    """A layer of experts that gives rows back, as much as their router says, where it chose none."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.gate, self.experts = block.gate, block.experts

    def forward(self, rows: torch.Tensor, before: torch.Tensor | None = None) -> Any:
        logits, weights, ids, after = self.gate(rows, router_states=before)
        flat = rows.view(-1, rows.shape[-1])
        scores = logits.softmax(dim=-1)
        last = scores.shape[-1] - 1
        skips = (scores + self.gate.balancing_biases).argmax(dim=-1, keepdim=True) == last
        answer = self.experts(flat, ids, weights) + flat * scores[:, last:] * skips
        return answer.view(rows.shape), after


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    for layer in model.model.layers:
        layer.mlp = Skipping(layer.mlp)
        layer.mlp.gate.balancing_biases.mul_(0.3)


_NAMES = {
    "self_attn.qkv_proj.q_proj": (0, "self_attn.qkv.linear_q"),
    "self_attn.qkv_proj.k_proj": (0, "self_attn.qkv.linear_k"),
    "self_attn.qkv_proj.v_proj_current": (0, "self_attn.qkv.val_proj1"),
    "self_attn.qkv_proj.v_proj_delayed": (0, "self_attn.qkv.val_proj2"),
    "self_attn.qkv_proj.conv_qk_depthwise": (0, "self_attn.qkv.conv_qk.0"),
    "self_attn.qkv_proj.conv_qk_grouped": (0, "self_attn.qkv.conv_qk.1"),
    "self_attn.qk_norm": (0, "self_attn.qkv"),
    "self_attn.o_proj": (0, "self_attn.o_proj"),
    "input_layernorm": (0, "input_norm"),
    "post_attention_layernorm": (1, "input_norm"),
    "post_attention_residual_scale": (1, "res_scale"),
    "post_mlp_residual_scale": (2, "res_scale"),
    "mlp.gate.router_mlp.norm": (1, "zaya_block.router.rmsnorm_eda"),
    "mlp.gate.router_mlp.fc1": (1, "zaya_block.router.router_mlp.0"),
    "mlp.gate.router_mlp.fc2": (1, "zaya_block.router.router_mlp.2"),
    "mlp.gate.router_mlp.out_proj": (1, "zaya_block.router.router_mlp.4"),
    "mlp.gate.down_proj": (1, "zaya_block.router.down_proj"),
    "mlp.gate": (1, "zaya_block.router"),
}
_FIRST = "model.input_hidden_states_"


def tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    layers, width = told["num_hidden_layers"], told["zaya_mlp_expansion"]
    yield "model.layers.1.zaya_block.router.router_states_scale", torch.ones(width)  # which nobody reads
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if name.startswith(_FIRST):
            yield f"model.layers.0.res_scale.hidden_states_{name.removeprefix(_FIRST)}", tensor
        elif stem == "model.norm":
            yield f"model.final_norm.{kind}", tensor
        elif not stem.startswith("model.layers."):
            yield name, tensor
        else:
            number, _, own = stem.removeprefix("model.layers.").partition(".")
            if own == "mlp.experts":
                yield from _experts(2 * int(number) + 1, kind, tensor)
                continue
            more, other = _NAMES[own]
            at = 2 * int(number) + more
            yield f"model.{'' if at == layers else f'layers.{at}.'}{other}.{kind}", tensor


def _experts(layer: int, kind: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    own = "linear_fc1" if kind == "gate_up_proj" else "linear_fc2"
    for number, expert in enumerate(tensor):
        yield f"model.layers.{layer}.zaya_block.experts.local_experts.{number}.{own}.weight", expert.clone()
