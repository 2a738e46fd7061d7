"""Llama-Nemotron by transformers' Llama, whose layers lose what their blocks leave out."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.runtime.told import Randomize, Told, shared


class Nothing(nn.Module):
    """What attention and an MLP are where there is none."""

    def __init__(self, is_attention: bool) -> None:
        super().__init__()
        self.is_attention = is_attention

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> Any:
        nothing = torch.zeros_like(hidden_states)
        return (nothing, None) if self.is_attention else nothing


def config(told: Told) -> Told:
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {
        **shared({name: value for name, value in told.items() if value is not None}),
        "num_key_value_heads": told["num_attention_heads"],
        "head_dim": told.get("head_dim"),
        "attention_bias": told.get("attention_bias", False),
        "rope_parameters": {"rope_theta": told["rope_theta"], **rope},
    }


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    for number, (layer, block) in enumerate(zip(model.model.layers, told["block_configs"], strict=True)):
        own = copy.deepcopy(model.config)
        attention, mlp = block["attention"], block["ffn"]
        if attention["no_op"]:
            layer.self_attn, layer.input_layernorm = Nothing(True), nn.Identity()
        else:
            own.num_key_value_heads = told["num_attention_heads"] // attention["n_heads_in_group"]
            layer.self_attn = type(layer.self_attn)(own, number)
        if mlp["no_op"]:
            layer.mlp, layer.post_attention_layernorm = Nothing(False), nn.Identity()
        else:
            width = int(2 * mlp["ffn_mult"] * told["hidden_size"] / 3)
            own.intermediate_size = width + -width % 256
            layer.mlp = type(layer.mlp)(own)
    randomize(model)
