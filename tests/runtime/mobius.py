"""Intern-S2-Mobius's text by transformers' Qwen3.5, whose layers take turns at banks of experts with a router
(srt/models/interns2_mobius.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told

_OF_BANKS = {"norm_topk_prob", "num_blocks"}


class InternS2MobiusTextConfig(PreTrainedConfig):
    """srt/configs/interns2_mobius.py, qwen3_5.py and qwen3_next.py"""

    model_type = "interns2_mobius_text"
    vocab_size: int = 151936
    hidden_size: int = 2048
    intermediate_size: int = 5632
    num_hidden_layers: int = 48
    num_attention_heads: int = 16
    num_key_value_heads: int = 2
    hidden_act: str = "silu"
    output_gate_type: str | None = None
    max_position_embeddings: int = 32768
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    head_dim: int = 256
    linear_conv_kernel_dim: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_num_key_heads: int = 16
    linear_num_value_heads: int = 32
    decoder_sparse_step: int = 1
    moe_intermediate_size: int = 512
    shared_expert_intermediate_size: int = 512
    num_experts_per_tok: int = 10
    num_experts: int = 512
    norm_topk_prob: bool = True
    output_router_logits: bool = False
    router_aux_loss_coef: float = 0.001
    mlp_only_layers: list[int] | None = None
    layer_types: list[str] | None = None
    num_blocks: int = 4


def sizes(told: Told) -> Told:
    return {name: value for name, value in told.items() if name not in _OF_BANKS}


class Gate(nn.Module):
    """Which may leave the chosen ones' shares as they are."""

    def __init__(self, own: Any, told: Told) -> None:
        super().__init__()
        self.weight, self.chosen = own.weight, told["num_experts_per_tok"]
        self.is_whole = told.get("norm_topk_prob", True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = F.linear(x, self.weight)
        shares, chosen = logits.softmax(-1).topk(self.chosen, dim=-1)
        return logits, shares / shares.sum(-1, keepdim=True) if self.is_whole else shares, chosen


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    layers = model.model.layers
    for number, layer in enumerate(layers):
        bank = layers[number % told["num_blocks"]].mlp
        layer.mlp.experts, layer.mlp.gate = bank.experts, bank.gate
        if bank is layer.mlp:
            layer.mlp.gate = Gate(layer.mlp.gate, told)


def tensors(own: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    """Of what several layers share, the first's."""
    for name, tensor in own.items():
        number, _, part = name.removeprefix("model.layers.").partition(".mlp.")
        shared = part.startswith(("experts.", "gate."))
        yield f"model.meta_mlp.{number}.{part}" if shared else name, tensor
