"""Nemotron-H Puzzle by transformers' Nemotron-H, whose layers of experts are made anew, each by its block."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, each_expert


class NemotronHPuzzleConfig(PreTrainedConfig):
    """Of srt/configs/nemotron_h.py, with the names that checkpoints have."""

    model_type = "nemotron_h_puzzle"
    block_configs: list[dict[str, Any]] | None = None
    mtp_block_configs: list[dict[str, Any]] | None = None
    layers_block_type: list[str] | None = None
    vocab_size: int = 131072
    hidden_size: int = 4096
    intermediate_size: int = 21504
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int = 128
    max_position_embeddings: int = 4096
    attention_bias: bool = False
    attention_dropout: float = 0.0
    sliding_window: int | None = None
    mlp_hidden_act: str = "relu2"
    mlp_bias: bool = False
    use_bias: bool = False
    tie_word_embeddings: bool = False
    layer_norm_epsilon: float = 1e-5
    residual_in_fp32: bool = False
    num_logits_to_keep: int = 1
    hidden_dropout: float = 0.0
    use_mamba_kernels: bool = True
    ssm_state_size: int = 128
    mamba_num_heads: int = 128
    n_groups: int = 8
    mamba_n_groups: int = 8
    mamba_head_dim: int = 64
    mamba_d_conv: int = 4
    mamba_expand: int = 2
    mamba_hidden_act: str = "silu"
    mamba_dt_min: float = 0.001
    mamba_dt_max: float = 0.1
    mamba_dt_init_floor: float = 1e-4
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = False
    mamba_chunk_size: int = 256
    rescale_prenorm_residual: bool = True
    n_routed_experts: int = 8
    n_shared_experts: int = 1
    moe_intermediate_size: int = 7688
    moe_shared_expert_intermediate_size: int = 7688
    moe_latent_size: int | None = None
    num_experts_per_tok: int = 2
    routed_scaling_factor: float = 1.0
    n_group: int = 1
    topk_group: int = 1
    norm_topk_prob: bool = True
    num_nextn_predict_layers: int = 0
    mtp_layers_block_type: list[str] | None = None


_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}
_NOT_OF_ITS_CLASS = ("block_configs", "mtp_block_configs", "num_hidden_layers", "hybrid_override_pattern")


def config(told: Told) -> Told:
    kinds = [_KINDS.get(block["block_type"], block["block_type"]) for block in told["block_configs"]]
    kept = {name: value for name, value in told.items() if name not in _NOT_OF_ITS_CLASS}
    return {**kept, "layers_block_type": kinds}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    for number, (layer, block) in enumerate(zip(model.model.layers, told["block_configs"], strict=True)):
        if block["block_type"] == "moe":
            own = copy.deepcopy(model.config)
            for name, value in block.items():
                setattr(own, name, value)
            layer.mixer = type(layer.mixer)(own, number)
            randomize(layer.mixer)
            layer.mixer.requires_grad_(False)


def tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if stem.endswith(".experts"):
            yield from each_expert(stem, kind, tensor)
        else:
            yield name, tensor
