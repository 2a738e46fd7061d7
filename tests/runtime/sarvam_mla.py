"""Sarvam 105B by transformers' DeepSeek-V3, whose latents are normed as its rows are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.runtime.told import Randomize, Tensors, Told, each_expert, shared

_SAME = (
    *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "moe_intermediate_size"),
    *("num_experts_per_tok", "first_k_dense_replace", "routed_scaling_factor"),
)


def sizes(told: Told) -> Told:
    rope = dict(told["rope_scaling"])
    kind = rope.pop("type", None) or rope["rope_type"]
    return {
        **shared(told),
        **{one: told[one] for one in _SAME},
        **{"n_routed_experts": told["num_experts"], "n_shared_experts": told["num_shared_experts"]},
        **{"q_lora_rank": None, "norm_topk_prob": True, "attention_bias": False},
        **{one: told.get(one) or 1 for one in ("n_group", "topk_group")},
        "num_key_value_heads": told["num_attention_heads"],
        "rope_parameters": {
            **{name: value for name, value in rope.items() if value is not None},
            **{"rope_theta": told["rope_theta"], "rope_type": kind.removeprefix("deepseek_")},
        },
    }


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    for layer in model.model.layers:
        layer.self_attn.kv_a_layernorm.variance_epsilon = told["rms_norm_eps"]


def tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if kind in ("gate_up_proj", "down_proj"):
            yield from each_expert(stem, kind, tensor)
        else:
            yield name, tensor
