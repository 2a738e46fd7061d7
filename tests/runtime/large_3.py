"""Mistral Large 3, as SGLang reads its params.json, by transformers' Mistral 4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from tests.runtime.told import Randomize, Tensors, Told, each_expert, shared

_LENGTH = "original_max_position_embeddings"


def large_3(told: Told) -> Told:
    """Its scores are scaled where its yarn says so; what its yarn multiplies angles by is written out."""
    latents = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    experts = ("n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size")
    experts += ("routed_scaling_factor", "first_k_dense_replace", "rope_interleave", "attention_bias")
    yarn, grows = dict(told["rope_scaling"]), told["llama_4_scaling"]
    over, under = (1 + 0.1 * yarn.pop(one) * math.log(yarn["factor"]) for one in ("mscale", "mscale_all_dim"))
    scaled = told["rope_scaling"]["mscale_all_dim"] if yarn.pop("apply_yarn_scaling") else 0.0
    rope = {**yarn, "rope_type": "yarn", "attention_factor": over / under, "mscale_all_dim": scaled}
    return {
        **shared(told),
        **{one: told[one] for one in (*latents, *experts) if one in told},
        "num_key_value_heads": told["num_attention_heads"],
        "rope_parameters": {**rope, "llama_4_scaling_beta": grows["beta"]},
    }


def alter_large_3(model: Any, told: Told, randomize: Randomize) -> None:
    """Its queries grow by a length of their own, which the class reads where its yarn's stood."""
    model.config.rope_parameters |= {_LENGTH: told["llama_4_scaling"][_LENGTH]}


def same_tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if kind in ("gate_up_proj", "down_proj"):
            yield from each_expert(stem, kind, tensor)
        else:
            yield name, tensor
