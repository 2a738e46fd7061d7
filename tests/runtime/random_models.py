"""Random tiny models of a family, saved by transformers and served by us: equal logits, or a refusal by name.

python -m tests.runtime.random_models --family qwen3 --count 30 --seed 5
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from runtime.forward.comm import VirtualCommunicator
from runtime.server.config import ParallelConfig
from runtime.server.errors import ConfigError
from tests.runtime.families import delta_layers, make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime

TOLERANCE = 1e-4
LARGE = 32.0  # logits beyond it, of tied embeddings: transformers itself is off by 1e-4 there, from its fp64
STEPS = 8
_NULLABLE = (
    "sliding_window",
    "q_lora_rank",
    "rope_parameters",
    "mlp_layer_types",
    *("swiglu_limits", "swiglu_limits_shared", "attention_value_scale"),
)
_LENGTHS = (21, 13, 17)
_ROPES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 2.0, "beta_fast": 16.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 0.7},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
)  # fmt: skip


def _without(space: dict[str, tuple[Any, ...]], *names: str) -> dict[str, tuple[Any, ...]]:
    return {name: choices for name, choices in space.items() if name not in names}


_COMMON: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (1, 2, 3),
    "num_attention_heads": (4, 8),
    "intermediate_size": (48, 96),
    "rms_norm_eps": (1e-6, 1e-2),
    "tie_word_embeddings": (False, True),
    "rope_parameters": _ROPES,
    "hidden_act": (*("silu",) * 9, "gelu"),
}
_HEADS = {**_COMMON, "num_key_value_heads": (1, 2, 4), "head_dim": (8, 16, 32, None)}
_WINDOW: dict[str, tuple[Any, ...]] = {"sliding_window": (None, 1, 5, 64)}
_OPTIONAL_WINDOW = {**_WINDOW, "use_sliding_window": (False, True)}
_BOTH_KINDS = (["sliding_attention", "full_attention"], ["full_attention", "sliding_attention"])
_BY_LAYER = (
    ["linear_attention", "full_attention", "linear_attention"],
    ["full_attention", "linear_attention", "linear_attention"],
)


def _ropes_by_kind(*ropes: dict[str, Any] | None) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "full_attention": {"rope_theta": 900.0, **rope},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
        }
        for rope in ropes
        if rope is not None
    )


_ROPES_BY_KIND = _ropes_by_kind(*_ROPES)
_PATTERN = {"sliding_window": (1, 5, 64), "sliding_window_pattern": (1, 2, 4)}
_EXPERTS = {"num_experts_per_tok": (1, 2, 3)}
_SIGMOID: dict[str, tuple[Any, ...]] = {
    **_EXPERTS,
    "n_routed_experts": (8, 16),
    "moe_intermediate_size": (16, 32),
    "n_shared_experts": (1, 2),
    "routed_scaling_factor": (1.0, 2.5),
    "n_group": (1, 2, 4),
    "topk_group": (1, 2),
    "norm_topk_prob": (True, False),
    "first_k_dense_replace": (0, 1, 9),
    "attention_bias": (False, True),
}
_LATENT: dict[str, tuple[Any, ...]] = {
    **_COMMON,
    **_SIGMOID,
    "num_attention_heads": (4,),
    "num_key_value_heads": (4,),
    "kv_lora_rank": (16, 32),
    "q_lora_rank": (16, 24),
    "qk_nope_head_dim": (8, 16),
    "qk_rope_head_dim": (4, 8),
    "v_head_dim": (8, 16, 24),
}
# As many sections as half a head has pairs, 16 wide or turned by half.
_SECTIONS, _HALF_SECTIONS = (
    tuple(
        {"rope_theta": 500.0, **(rope or {"rope_type": "default"}), "mrope_section": sections}
        for rope in _ROPES
        if rope is None or "partial_rotary_factor" not in rope
        for sections in choices
    )
    for choices in ([[2, 3, 3], [4, 2, 2]], [[1, 1, 2], [2, 1, 1]])
)
_WITH_SECTIONS = {**_HEADS, "head_dim": (None,), "num_attention_heads": (4,), "rope_parameters": _SECTIONS}
_QWEN_VL = {**_WITH_SECTIONS, **_OPTIONAL_WINDOW, "max_window_layers": (0, 1, 9)}
_GLM_4V = {
    **_WITH_SECTIONS,
    "rope_parameters": (*_SECTIONS, *({**rope, "partial_rotary_factor": 0.5} for rope in _HALF_SECTIONS)),
}
_MSCALES = tuple(
    {**rope, "mscale": 1.0, "mscale_all_dim": share} if rope and rope["rope_type"] == "yarn" else rope
    for rope in _ROPES
    for share in (1.0, 0.707)
)
_SPARSE = {
    "index_topk": (4, 16),
    "index_n_heads": (16,),
    "index_head_dim": (16, 32),
    "mlp_layer_types": (None,),
}

_DELTA: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (3,),
    "head_dim": (8, 16, 32),
    "attention_bias": (False, True),
    "linear_num_key_heads": (1, 2, 4),
    "linear_num_value_heads": (4, 8),
    "linear_key_head_dim": (4, 8, 16),
    "linear_value_head_dim": (8, 16),
    "linear_conv_kernel_dim": (2, 3, 4),
    "layer_types": (None, *_BY_LAYER),
    "full_attention_interval": (None, 1, 2, 3),
    "partial_rotary_factor": (None, 0.25, 0.5, 1.0),
}

_ONE_THING_EACH = (
    ["full_attention", "linear_attention", "linear_attention", "moe"],
    ["mlp", "linear_attention", "full_attention", "moe", "linear_attention"],
    ["moe", "linear_attention", "mlp", "full_attention"],
)


_GEMMA: dict[str, tuple[Any, ...]] = {
    **_without(_HEADS, "hidden_act"),
    "head_dim": (8, 16, 32), "query_pre_attn_scalar": (4, 16, 100), "attention_bias": (False, True),
    "final_logit_softcapping": (None, 3.0, 30.0), "sliding_window": (1, 5, 64),
    "hidden_activation": ("gelu_pytorch_tanh",) * 6 + ("gelu",),
    "use_bidirectional_attention": (False,) * 6 + (True,),
}  # fmt: skip
_GEMMA3 = {
    **_GEMMA, "sliding_window_pattern": (1, 2, 3), "sliding_window": (2, 5, 64),
    "rope_parameters": (None, *_ROPES_BY_KIND),
}  # fmt: skip
_GROWN = tuple(
    {**rope, "rope_theta": 500.0, "original_max_position_embeddings": length, "llama_4_scaling_beta": beta}
    for rope in _ROPES
    if rope is not None and rope["rope_type"] in ("yarn", "llama3")
    for length, beta in ((4, 0.3), (32, 0.1))
)
_LLAMA4 = {
    **_HEADS, "num_hidden_layers": (3,), "head_dim": (8, 16, 32), "attention_bias": (False, True),
    "intermediate_size": (24, 48), "intermediate_size_mlp": (48, 96),
    "num_experts_per_tok": (1, 1, 2), "num_local_experts": (4, 8),
    "moe_layers": (None, [0], [1, 2]), "interleave_moe_layer_step": (1, 2), "use_qk_norm": (False, True),
    "no_rope_layers": ([], [1, 0, 1], [0, 1, 1]), "no_rope_layer_interval": (1, 2, 4),
    "attention_chunk_size": (4, 7, 64), "attn_temperature_tuning": (False, True),
    "floor_scale": (4, 8192), "attn_scale": (0.1, 0.5),
}  # fmt: skip
_GRANITE = {
    **_HEADS, "head_dim": (None, 8, 32), "attention_bias": (False, True),
    "embedding_multiplier": (1.0, 12.0), "logits_scaling": (1.0, 8.0, 0.25),
    "residual_multiplier": (1.0, 0.22), "attention_multiplier": (0.1, 0.4),
}  # fmt: skip
_STEP = {
    **_without(_HEADS, "hidden_act"), "num_hidden_layers": (3,), "head_dim": (8, 16, 32),
    "hidden_act": ("silu",), "tie_word_embeddings": (False,) * 9 + (True,),
    "num_sliding_attention_heads": (None, 4, 8, 16), "attention_bias": (False, True),
    "layer_types": (["full_attention"] * 3, *(["full_attention", *kinds] for kinds in _BOTH_KINDS)),
    "mlp_layer_types": (None, ["dense", "sparse", "sparse"], ["sparse", "dense", "sparse"]),
    **_EXPERTS, "n_routed_experts": (4, 8), "moe_intermediate_size": (16, 32), "share_expert_dim": (16, 48),
    "moe_router_scaling_factor": (1.0, 3.0), "sliding_window": (1, 5, 64),
    "query_pre_attn_scalar": (None, 4, 100), "mlp_bias": (False,) * 9 + (True,),
    "swiglu_limits": (None, [0.0, 0.0, 0.5], [None, 0.2, 7.0]),
    "swiglu_limits_shared": (None, [0.0, 0.6, 0.0], [0.3, None, 16.0]),
    "rope_parameters": (None, *_ROPES_BY_KIND),
}  # fmt: skip
_COHERE = {
    **_without(_HEADS, "rms_norm_eps", "head_dim", "tie_word_embeddings"), "layer_norm_eps": (1e-6, 1e-2),
    "logit_scale": (0.0625, 1.0, 3.0), "attention_bias": (False,) * 9 + (True,),
    "tie_word_embeddings": (None,) * 9 + (False,),
}  # fmt: skip
# Their class adds nothing to what it is told.
_WHOLE_ROPES = tuple(
    {"rope_theta": 10000.0, **({"original_max_position_embeddings": 128} if kind == "yarn" else {}), **rope}
    for rope in _ROPES
    if rope is not None
    for kind in (rope["rope_type"],)
)
_COHERE_MOE = {
    **_COHERE, **_EXPERTS, "num_hidden_layers": (3,), "head_dim": (8, 16, 32, None),
    "rope_parameters": _WHOLE_ROPES,
    "layer_types": (None, None, *([*kinds, kinds[1]] for kinds in _BOTH_KINDS)),
    "sliding_window": (5, 1, 64) * 6 + (None,), "sliding_window_pattern": (1, 2, 4),
    "first_k_dense_replace": (None, 1, 2), "prefix_dense_sliding_window_pattern": (1, 1, 2),
    "prefix_dense_intermediate_size": (24, 72) * 6 + (None,), "intermediate_size": (16, 32),
    "mlp_layer_types": (None,) * 9 + (["sparse", "dense", "sparse"],), "num_experts": (4, 8),
    "num_shared_experts": (0, 1, 2), "shared_expert_combination_strategy": ("average", "sum"),
    "expert_selection_fn": ("sigmoid", "softmax"), "norm_topk_prob": (True,) * 3 + (False,),
    "rms_norm_eps": (None, None, 1e-6, 1e-2),
}  # fmt: skip
_MIMO = {
    **_without(_HEADS, "tie_word_embeddings", "head_dim"), "num_hidden_layers": (3,),
    "num_key_value_heads": (1, 2), "head_dim": (24, 32), "v_head_dim": (8, 16, 24, 32),
    "tie_word_embeddings": (False,) * 9 + (True,), "attention_bias": (False, True),
    "attention_value_scale": (None, 0.707, 2.0), "sliding_window": (1, 5, 64),
    "layer_types": (
        None, ["full_attention"] * 3, ["sliding_attention"] * 3,
        *(["full_attention", *kinds] for kinds in _BOTH_KINDS),
    ),
    "mlp_layer_types": (None, ["dense", "sparse", "sparse"], ["sparse", "dense", "sparse"]),
    **_without(_SIGMOID, "n_shared_experts", "first_k_dense_replace"),
    "n_group": (1, 2, 2), "topk_group": (1, 1, 1, 2),
    "routed_scaling_factor": (1.0,) * 9 + (2.5, None), "rope_parameters": (None, *_ROPES_BY_KIND),
}  # fmt: skip
_CONVOLVED = (
    ["conv", "conv", "full_attention"],
    ["full_attention", "conv", "conv"],
    ["conv", "full_attention", "full_attention"],
    ["full_attention"] * 3,
)
_LFM2 = {
    **_without(_HEADS, "hidden_act", "rms_norm_eps", "head_dim"), "num_hidden_layers": (3,),
    "norm_eps": (1e-6, 1e-2), "conv_bias": (False, True), "conv_L_cache": (2, 3, 4),
    "tie_embedding": (None, False, True),
}  # fmt: skip
_V4_ROPES = tuple(
    {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 32, **betas}
    for factor in (4.0, 16.0)
    for betas in ({}, {"beta_fast": 32, "beta_slow": 1}, {"beta_fast": 16.0, "beta_slow": 2.0})
)
_BAILING = {
    **_without(_HEADS, "rope_parameters"), **_EXPERTS,
    "rope_scaling": (None,) * 3 + tuple(rope for rope in _ROPES if rope is not None),
    "rope_theta": (None, 500.0), "partial_rotary_factor": (None, 0.5, 0.25, 1.0), "rotary_dim": (4, 8, 32),
    "use_bias": (None,) * 19 + (True,), "use_qkv_bias": (None, False, True), "norm_head": (None, False, True),
    "num_experts": (8, 16), "moe_intermediate_size": (16, 32), "norm_topk_prob": (True, False),
    "moe_shared_expert_intermediate_size": (None, 16, 48), "first_k_dense_replace": (None, 0, 1, 9),
    "routed_scaling_factor": (None, 2.5), "router_dtype": (None,) * 4 + ("fp32",) * 4 + ("bf16",),
    "use_rmsnorm": (None, True), "multi_gate": (None,) * 19 + (True,),
}  # fmt: skip
_LFM2_DENSE = {
    **_LFM2, "layer_types": (None, *_CONVOLVED), "full_attn_idxs": (None, [0], [0, 2], [1]),
    "block_multiple_of": (16, 32), "block_ffn_dim_multiplier": (1.0, 1.5, 0.75),
    "block_auto_adjust_ff_dim": (True, False), "block_ff_dim": (None, 72),
}  # fmt: skip
# What varies, beside the sizes of FAMILIES.
_GEMMA4_ROPES = (
    {"rope_type": "proportional", "partial_rotary_factor": 0.25},
    {"rope_type": "proportional", "partial_rotary_factor": 0.7},
    {"rope_type": "proportional"},
    {"rope_type": "default"},
)
_GEMMA4: dict[str, tuple[Any, ...]] = {
    **_without(_HEADS, "hidden_act"), "num_hidden_layers": (3,), "head_dim": (8, 12, 16),
    "hidden_activation": ("gelu_pytorch_tanh",) * 19 + ("silu",),
    "global_head_dim": (8, 16, 20), "num_global_key_value_heads": (None, None, 1, 2, 4),
    "attention_k_eq_v": (True, False), "attention_bias": (False, False, True), "sliding_window": (1, 5, 64),
    "layer_types": (
        *(["sliding_attention"] * 2 + ["full_attention"],) * 3,
        *(["full_attention"] * 3, ["full_attention", "sliding_attention", "full_attention"]),
        ["sliding_attention"] * 3,
    ),
    "final_logit_softcapping": (None, 5.0), "use_bidirectional_attention": (None, "vision"),
    "hidden_size_per_layer_input": (0,) * 19 + (8,), "num_kv_shared_layers": (0,) * 19 + (1,),
    "enable_moe_block": (True, False), "num_experts": (4, 8), "top_k_experts": (1, 2, 3),
    "moe_intermediate_size": (16, 32),
    "rope_parameters": (None, *_ropes_by_kind(*_GEMMA4_ROPES * 4, *_ROPES)),
}  # fmt: skip
SPACES: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama": {**_HEADS, "attention_bias": (False, True), "mlp_bias": (False,) * 5 + (True,)},
    "mistral": {**_HEADS, **_WINDOW},
    "qwen2": {**_HEADS, **_OPTIONAL_WINDOW, "max_window_layers": (0, 1, 9)},
    "qwen3": {
        **_HEADS, **_OPTIONAL_WINDOW,
        "head_dim": (8, 32), "max_window_layers": (0, 1, 9), "attention_bias": (False, True),
    },
    "qwen3_moe": {
        **_HEADS, **_OPTIONAL_WINDOW, **_EXPERTS,
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32), "attention_bias": (False, True),
        "decoder_sparse_step": (1, 2), "mlp_only_layers": ([], [0], [1, 2]), "norm_topk_prob": (False, True),
    },
    "qwen2_moe": {
        **_HEADS, **_OPTIONAL_WINDOW, **_EXPERTS,
        "head_dim": (None, 8, 32), "max_window_layers": (0, 1, 9), "qkv_bias": (False, True),
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32),
        "shared_expert_intermediate_size": (16, 48), "norm_topk_prob": (False, True),
        "decoder_sparse_step": (1, 2), "mlp_only_layers": ([], [0], [1, 2]),
    },
    "minimax_m2": {
        **_HEADS, **_EXPERTS,
        "head_dim": (8, 32), "num_local_experts": (4, 8), "rotary_dim": (None, 4, 8),
    },
    "phi3": {
        **_HEADS, **_WINDOW,
        "head_dim": (None, 8, 32), "partial_rotary_factor": (None, 0.5, 0.75),
        "rope_parameters": (*_ROPES[:2] * 3, *_ROPES),
    },
    "mellum": {
        **_HEADS, **_EXPERTS,
        "num_hidden_layers": (2,), "head_dim": (8, 32), "attention_bias": (False, True),
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32), "norm_topk_prob": (False, True),
        "sliding_window": (1, 5, 64), "layer_types": (None, *_BOTH_KINDS),
        "mlp_layer_types": (None, ["dense", "sparse"]),
        "rope_parameters": (None, *_ROPES_BY_KIND),
    },
    "glm4_moe_lite": {
        **_without(_LATENT, "first_k_dense_replace"),
        "q_lora_rank": (None, 24), "rope_interleave": (True, False), "rope_parameters": _MSCALES,
        "mlp_layer_types": (None, ["sparse"] * 3),
    },
    "exaone4": {**_HEADS, **_PATTERN, "head_dim": (None, 8, 32)},
    "exaone_moe": {
        **_HEADS, **_without(_SIGMOID, "n_routed_experts", "n_shared_experts"), **_PATTERN,
        "head_dim": (None, 8, 32), "num_experts": (8, 16), "num_shared_experts": (1, 2),
        "mlp_layer_types": (None,),
    },
    "glm4": {
        **_HEADS,
        "head_dim": (8, 16, 32), "attention_bias": (False, True),
        "partial_rotary_factor": (None, 0.5, 1.0, 0.25),
    },
    "olmo2": {**_HEADS, "attention_bias": (False, True)},
    "olmoe": {
        **_HEADS, **_EXPERTS,
        "head_dim": (None,), "attention_bias": (False, True), "num_experts": (4, 8),
        "norm_topk_prob": (False, True), "clip_qkv": (None,) * 5 + (0.5,),
    },
    "ernie4_5": {**_HEADS, "use_bias": (False,) * 5 + (True,)},
    "ernie4_5_moe": {
        **_HEADS,
        "moe_k": (1, 2, 3), "moe_num_experts": (4, 8), "moe_num_shared_experts": (0, 1, 2),
        "moe_intermediate_size": (16, 32), "moe_layer_start_index": (0, 1), "moe_layer_interval": (1, 2),
        "moe_layer_end_index": (-1, 0, 1, 9), "moe_norm_min": (1e-12,) * 5 + (0.9,),
        "use_bias": (False,) * 5 + (True,),
    },
    "qwen3_next": {
        **_HEADS, **_EXPERTS, **_DELTA,
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32), "norm_topk_prob": (False, True),
        "shared_expert_intermediate_size": (16, 48),
        "decoder_sparse_step": (1, 2), "mlp_only_layers": ([], [0], [1, 2]),
    },
    "qwen3_5_text": {**_HEADS, **_DELTA},
    "qwen3_5_moe_text": {
        **_without(_HEADS, "intermediate_size"), **_EXPERTS, **_DELTA,
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32), "shared_expert_intermediate_size": (16, 48),
    },
    "nemotron_h": {
        "num_hidden_layers": (None,),
        "layers_block_type": (None, *_ONE_THING_EACH), "num_attention_heads": (4, 8),
        "num_key_value_heads": (1, 2, 4), "head_dim": (8, 16, 32), "intermediate_size": (48, 96),
        "layer_norm_epsilon": (1e-6, 1e-2), "tie_word_embeddings": (False,) * 5 + (True,),
        "mlp_hidden_act": ("relu2",) * 9 + ("silu",), "mamba_hidden_act": ("silu",) * 9 + ("gelu",),
        "mlp_bias": (False,) * 5 + (True,), "attention_bias": (False, True), "use_bias": (False, True),
        "use_conv_bias": (False, True), "ssm_state_size": (8, 16), "mamba_num_heads": (4, 8),
        "mamba_head_dim": (8, 16), "n_groups": (1, 2, 4), "conv_kernel": (2, 3, 4), "chunk_size": (4, 8, 128),
        "time_step_min": (0.001, 0.3), "sliding_window": (None, 4),
        **_EXPERTS, "n_routed_experts": (8, 16), "moe_intermediate_size": (16, 32),
        "moe_shared_expert_intermediate_size": (16, 48), "moe_latent_size": (None, 24, 32),
        "routed_scaling_factor": (1.0, 2.5), "n_group": (1, 2, 4), "topk_group": (1, 2),
        "norm_topk_prob": (True, False),
    },
    "mixtral": {**_HEADS, **_WINDOW, **_EXPERTS, "num_local_experts": (4, 8)},
    "glm4_moe": {
        **_HEADS, **_SIGMOID,
        "use_qk_norm": (False, True), "partial_rotary_factor": (None, 0.5, 1.0, 0.25),
    },
    "gemma2": {
        **_GEMMA, "attn_logit_softcapping": (None, 2.0, 50.0), "sliding_window": (1, 5, 64),
    },
    "gemma3_text": {
        **_GEMMA3,
        "layer_types": (None,) * 3 + tuple([*kinds, kinds[0]] for kinds in _BOTH_KINDS),
    },
    "gemma4": _without(_GEMMA4, "use_bidirectional_attention"),
    "gemma3": {**_GEMMA3, "final_logit_softcapping": (None,)},  # transformers leaves it out beside images
    "gemma4_text": _GEMMA4,
    "llama4_text": _LLAMA4,
    "llama4": _LLAMA4,
    "ministral3": {**_HEADS, **_WINDOW, "rope_parameters": _GROWN},
    "hunyuan_v1_dense": {
        **_HEADS,
        "head_dim": (8, 16, 32), "attention_bias": (False, True),
        "rope_parameters": (
            *_ROPES,
            {"rope_type": "dynamic", "rope_theta": 900.0, "factor": 1.0, "alpha": 50.0},
        ),
    },
    "granite": _GRANITE,
    "granitemoe": {**_GRANITE, **_EXPERTS, "num_local_experts": (4, 8)},
    "granitemoehybrid": {
        **_without(_GRANITE, "head_dim"), "num_hidden_layers": (3,), "layer_types": _BY_LAYER,
        "num_local_experts": (0, 4, 8), **_EXPERTS, "intermediate_size": (16, 32),
        "shared_intermediate_size": (16, 48), "position_embedding_type": (None, "rope"),
        "mamba_n_heads": (4, 8), "mamba_n_groups": (1, 2, 4), "mamba_d_state": (8, 16),
        "mamba_d_conv": (2, 3, 4), "mamba_expand": (1, 2), "mamba_chunk_size": (4, 8, 128),
        "mamba_conv_bias": (False, True), "mamba_proj_bias": (False, True),
        "time_step_limit": (None,) * 5 + ((0.1, 0.5),),
    },
    "falcon_h1": {
        **_HEADS, "head_dim": (None, 8, 32), "hidden_act": ("silu",) * 19 + ("gelu",),
        "rope_parameters": (*({"rope_theta": 500.0, **rope} for rope in _ROPES if rope), None),
        "tie_word_embeddings": (False, True),
        **dict.fromkeys(("attention_bias", "mlp_bias"), (False,) * 29 + (True,)),
        "mamba_d_ssm": (None, 32, 64), "mamba_expand": (1, 2), "mamba_n_heads": (4, 8),
        "mamba_d_head": ("auto",) * 9 + (8,), "mamba_n_groups": (1, 2, 4), "mamba_d_state": (8, 16),
        "mamba_d_conv": (2, 3, 4), "mamba_chunk_size": (4, 8, 128), "mamba_conv_bias": (False, True),
        "mamba_proj_bias": (False,) * 19 + (True,), "projectors_bias": (False,) * 19 + (True,),
        "mamba_rms_norm": (False, True), "mamba_norm_before_gate": (False,) * 9 + (True,),
        "time_step_limit": (None,) * 19 + ((0.1, 0.5),),
        **dict.fromkeys(
            (
                *("embedding_multiplier", "lm_head_multiplier", "key_multiplier", "ssm_in_multiplier"),
                *("attention_in_multiplier", "attention_out_multiplier", "ssm_out_multiplier"),
            ),
            (0.4, 1.0, 1.4),
        ),
        "ssm_multipliers": (None, [0.4, 1.0, 1.4, 0.5, 1.2], [1.4, 0.3, 1.0, 1.3, 0.6]),
        "mlp_multipliers": (None, [0.3, 1.0], [1.5, 0.25]),
    },
    "mimo_v2_flash": _MIMO,
    "laguna": {
        **_without(_HEADS, "tie_word_embeddings"), **_EXPERTS, "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32), "tie_word_embeddings": (False,) * 19 + (True,),
        "attention_bias": (False, True), "gating": (True, "per-head", "per-element", *(True,) * 6, False),
        "num_attention_heads": (4,), "num_attention_heads_per_layer": ([4, 8, 8], [8, 4, 4], [4, 4, 4]),
        "layer_types": (
            *(["full_attention"] + ["sliding_attention"] * 2,) * 4,
            *(["full_attention"] * 3, ["sliding_attention"] * 3),
        ),
        "mlp_layer_types": (None, ["sparse"] * 3, ["sparse", "dense", "sparse"]),
        "sliding_window": (1, 5, 64), "rope_parameters": (None, *_ropes_by_kind(*_WHOLE_ROPES)),
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32),
        "shared_expert_intermediate_size": (16, 48), "moe_routed_scaling_factor": (1.0, 2.5),
        "moe_router_logit_softcapping": (0.0, 0.7, 30.0),
    },
    "afmoe": {
        **_HEADS, **_EXPERTS, "num_hidden_layers": (3,), "head_dim": (8, 16, 32),
        "tie_word_embeddings": (False,) * 19 + (True,), "attention_bias": (False,) * 19 + (True,),
        "num_experts": (4, 8), "num_shared_experts": (1, 2), "num_dense_layers": (0, 1, 2, 9),
        "moe_intermediate_size": (16, 32), "route_scale": (1.0, 2.826), "mup_enabled": (True, False),
        "sliding_window": (1, 5, 64),
        "layer_types": (
            *(["full_attention"] + ["sliding_attention"] * 2,) * 3,
            *(["full_attention"] * 3, ["sliding_attention"] * 3),
        ),
    },
    "hy_v3": {
        **_HEADS, **_EXPERTS, "num_hidden_layers": (3,), "head_dim": (8, 16, 32),
        "rope_parameters": (*_ROPES[:2] * 12, *_ROPES), "attention_bias": (False,) * 19 + (True,),
        "mlp_bias": (False,) * 19 + (True,), "num_experts": (4, 8), "num_shared_experts": (1, 2) * 9 + (0,),
        "moe_intermediate_size": (16, 32), "router_scaling_factor": (1.0, 2.826),
        "enable_moe_fp32_combine": (True, False), "route_norm": (True,) * 19 + (False,),
        "qk_norm": (True,) * 9 + (None,), "use_qk_norm": (None,) * 9 + (True, False),
        "mlp_layer_types": (
            None, ["sparse"] * 3, ["dense", "dense", "sparse"], ["dense"] * 3, ["sparse", "dense", "sparse"],
        ),
    },
    "internlm2": {
        **_without(_HEADS, "rope_parameters", "head_dim", "tie_word_embeddings"),
        "rope_scaling": (None,) * 2 + tuple(rope for rope in _ROPES if rope is not None),
        "rope_theta": (None, 500.0), "bias": (False,) * 19 + (True,),
        "tie_word_embeddings": (False,) * 19 + (True,),
    },
    "bailing_moe": {
        **_without(_BAILING, "partial_rotary_factor", "rotary_dim"), "num_shared_experts": (None, 0, 1, 2),
        "score_function": (*(None, "softmax") * 9, "sigmoid"), "n_group": (None,) * 19 + (2,),
        "use_sliding_window": (None, False), "sliding_window": (None, 4096),
    },
    "bailing_moe_v2": {
        **_BAILING, "num_shared_experts": (1, 2), "n_group": (1, 2, 4), "topk_group": (1, 2),
        "use_qk_norm": (True, False), "score_function": (None, *("sigmoid",) * 8, "softmax"),
        "moe_router_enable_expert_bias": (True,) * 19 + (False,),
        "router_type": (None,) * 19 + ("MultiRouter",),
    },
    "bailing_hybrid": {
        **_without(_BAILING, "rotary_dim", "norm_head", "multi_gate", "use_rmsnorm", "num_hidden_layers"),
        **{name: _LATENT[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")},
        "v_head_dim": (8, 16, 24), "q_lora_rank": (None, 16, 24), "rms_norm_eps": (1e-6,) * 30 + (1e-2,),
        "num_hidden_layers": (4,) * 30 + (2, 3), "layer_group_size": (2, 4) * 24 + (1, 3),
        "num_attention_heads": (4, 8, 6), "group_norm_size": (1, 2, 4, 8),
        "rope_scaling": (None,) * 49 + ({"rope_type": "yarn", "factor": 4.0},),
        "rope_theta": (10000.0, 500.0), "rotary_dim": (None, None, 4, 8),
        "partial_rotary_factor": (0.5, 0.25, 1.0), "use_qk_norm": (True, False),
        "use_bias": (None,) * 49 + (True,), "use_qkv_bias": (None, False) * 24 + (True,),
        "tie_word_embeddings": (False,) * 49 + (True,), "norm_topk_prob": (None, True) * 24 + (False,),
        "num_experts_per_tok": (2, 3) * 24 + (1,), "num_shared_experts": (1, 2, 0),
        "first_k_dense_replace": (0, 1, 9), "routed_scaling_factor": (1.0, 2.5),
        "n_group": (2, 4), "topk_group": (1, 2), "router_dtype": (None, "fp32") * 24 + ("bf16",),
        "moe_shared_expert_intermediate_size": (None,),
        "score_function": (None, "sigmoid") * 24 + ("softmax",),
        "moe_router_enable_expert_bias": (True,) * 49 + (False,), "linear_silu": (None, False) * 24 + (True,),
        "hidden_act": ("silu",) * 49 + ("gelu",), "rope_interleave": (None, True) * 24 + (False,),
    },
    "bailing_hybrid_v3": {
        **_without(_LATENT, "q_lora_rank", "n_routed_experts"), "hidden_act": ("silu",) * 49 + ("gelu",),
        "num_hidden_layers": (4,) * 49 + (3,), "layer_group_size": (2, 4) * 24 + (1,),
        "rms_norm_eps": (1e-6,) * 49 + (1e-2,), "attention_bias": (False,) * 49 + (True,),
        "tie_word_embeddings": (False,) * 49 + (True,), "num_experts": (8, 16), "n_group": (2, 4),
        "num_experts_per_tok": (1, 2, 2, 3), "short_conv_kernel_size": (2, 3, 4),
        "head_dim": (16,) * 49 + (8,), "v_head_dim": (16,) * 49 + (24,),
        "kda_safe_gate": (True, True, False), "kda_lower_bound": (-5.0, -1.0, -0.3),
        "rope_parameters": (*_ROPES[:2] * 24, _ROPES[2]),
        "layer_types": (None,) * 49 + (["full_attention", "linear_attention"] * 2,),
        "mlp_layer_types": (None,) * 49 + (["sparse", "dense"] * 2,),
    },
    "cohere": {**_COHERE, "use_qk_norm": (False,) * 9 + (True,)},
    "cohere2": {
        **_COHERE, "num_hidden_layers": (3,), "sliding_window": (1, 5, 64),
        "layer_types": (*([*kinds, kinds[1]] for kinds in _BOTH_KINDS), ["sliding_attention"] * 3),
    },
    "cohere2_moe": _COHERE_MOE,
    # transformers leaves the scale out beside images.
    "cohere2_vision": {**_without(_COHERE_MOE, "logit_scale"), "tie_word_embeddings": (None,) * 9 + (False,)},
    "lfm2": _LFM2_DENSE,
    "lfm2_vl": {**_without(_LFM2_DENSE, "tie_embedding"), "tie_word_embeddings": (False, True)},
    "lfm2_moe": {
        **_LFM2, **_EXPERTS, "layer_types": _CONVOLVED, "num_dense_layers": (0, 1, 9),
        "moe_intermediate_size": (16, 32), "num_experts": (4, 8), "use_expert_bias": (False, True),
        "routed_scaling_factor": (1.0, 2.5), "norm_topk_prob": (False, True),
    },
    "kimi_linear": {
        **_without(_HEADS, "head_dim", "num_attention_heads", "num_key_value_heads", "rope_parameters"),
        "num_hidden_layers": (3,), "num_attention_heads": (4,), "tie_word_embeddings": (False,) * 9 + (True,),
        "linear_attn_config": tuple(
            delta_layers(deltas, 3, num_heads=heads, head_dim=width, short_conv_kernel_size=taps)
            for deltas, heads, width, taps in (
                ([1, 3], 4, 8, 4), ([1], 8, 16, 3), ([2, 3], 4, 16, 2), ([1, 2], 2, 32, 4), ([3], 4, 8, 3),
            )
        ),
        "kv_lora_rank": (16, 32), "qk_nope_head_dim": (8, 16), "qk_rope_head_dim": (4, 8),
        "v_head_dim": (8, 16, 24), "q_lora_rank": (None,) * 9 + (24,),
        "attention_bias": (False,) * 9 + (True,),
        "num_experts": (8, 16), "num_experts_per_token": (1, 2, 3), "moe_intermediate_size": (16, 32),
        "num_shared_experts": (1, 2), "routed_scaling_factor": (1.0, 2.446), "num_expert_group": (1, 2, 4),
        "topk_group": (1, 2), "moe_renormalize": (True, False), "first_k_dense_replace": (0, 1, 9),
        "model_max_length": (128, 256),
    },
    "deepseek_v4": {
        "num_hidden_layers": (3,), "num_attention_heads": (4, 8), "head_dim": (16, 32),
        "intermediate_size": (16, 32), "rms_norm_eps": (1e-6, 1e-2), "hidden_act": (*("silu",) * 9, "gelu"),
        "tie_word_embeddings": (False, True), "qk_rope_head_dim": (4, 8), "q_lora_rank": (16, 24),
        "o_groups": (1, 2, 4), "o_lora_rank": (8, 16), "n_routed_experts": (8, 16), **_EXPERTS,
        "routed_scaling_factor": (1.0, 1.5), "swiglu_limit": (0.3, 2.0, 10.0), "sliding_window": (1, 6, 64),
        "compress_ratios": ([0, 4, 128], [4, 4, 0], [128, 4, 4], [0, 0, 0], [4, 0, 4]),
        "num_hash_layers": (0, 1, 3),
        "index_n_heads": (16,), "index_head_dim": (8, 16), "index_topk": (1, 2, 9),
        "hc_mult": (1, 2, 4), "hc_sinkhorn_iters": (1, 2, 20), "hc_eps": (1e-6, 1e-2),
        "compress_rope_theta": (160000.0, 300.0), "rope_theta": (10000.0, 500.0),
        "rope_scaling": (*_V4_ROPES, *_V4_ROPES, *(rope for rope in _ROPES if rope is not None)),
    },
    "gpt_oss": {
        **_HEADS, **_EXPERTS,
        "head_dim": (8, 16), "num_local_experts": (4, 8), "sliding_window": (1, 6, 64),
        "attention_bias": (False, True), "swiglu_limit": (7.0, 1.0),
    },
    "deepseek_v3": {
        **_LATENT,
        "q_lora_rank": (None, 24), "rope_interleave": (True, False), "rope_parameters": _MSCALES,
    },
    "longcat_flash": {
        **{name: _LATENT[name] for name in ("kv_lora_rank", "q_lora_rank", "v_head_dim", "rms_norm_eps")},
        **{name: _LATENT[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim")},
        "num_layers": (1, 2, 3), "num_attention_heads": (4,), "ffn_hidden_size": (48, 96),
        "hidden_act": ("silu",) * 19 + ("gelu",), "tie_word_embeddings": (False,) * 19 + (True,),
        "attention_bias": (False,) * 19 + (True,), "router_bias": (None, False) * 9 + (True,),
        "rope_parameters": (*_ROPES[:2] * 12, *_MSCALES), "n_routed_experts": (4, 8), "moe_topk": (2, 3, 4),
        "zero_expert_num": (0, 2, 8), "expert_ffn_hidden_size": (16, 32),
        "routed_scaling_factor": (1.0, 2.5, 6.0),
    },
    "deepseek_v32": {**_LATENT, **_SPARSE, "rope_parameters": _MSCALES},
    "glm_moe_dsa": {**_LATENT, **_SPARSE, "rope_parameters": _MSCALES},
    "qwen3_5": {**_HEADS, **_DELTA},
    "qwen3_5_moe": {**_without(_HEADS, "intermediate_size"), **_EXPERTS, **_DELTA},
    "qwen2_vl": _QWEN_VL,
    "qwen2_5_vl": _QWEN_VL,
    "qwen3_vl": {**_WITH_SECTIONS, "head_dim": (16,), "attention_bias": (False, True)},
    "qwen3_vl_moe": {
        **_WITH_SECTIONS, **_EXPERTS,
        "head_dim": (16,), "attention_bias": (False, True),
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32), "decoder_sparse_step": (1, 2),
        "mlp_only_layers": ([], [0], [1, 2]),
    },
    "qwen3_omni_moe": {
        **_without(_WITH_SECTIONS, "tie_word_embeddings"), **_EXPERTS,
        "head_dim": (16,), "attention_bias": (False, True), "sliding_window": (None, 4),
        "num_experts": (4, 8), "moe_intermediate_size": (16, 32), "norm_topk_prob": (True, False),
        "decoder_sparse_step": (1, 2), "mlp_only_layers": (None, [], [0], [1, 2]),
        "tie_word_embeddings": (False, True),
    },
    "glm4v": _GLM_4V,
    "glm46v": _GLM_4V,
    "glm4v_moe": {
        **_WITH_SECTIONS, **_SIGMOID,
        "rope_parameters": _HALF_SECTIONS, "head_dim": (None, 16), "partial_rotary_factor": (None, 0.5),
    },
    "mistral3": {**_HEADS, **_WINDOW},
    "deepseek_v2": {
        **_without(_LATENT, "norm_topk_prob"), "q_lora_rank": (None, 24), "rope_parameters": _MSCALES,
        "topk_method": ("greedy", "group_limited_greedy"), "norm_topk_prob": (False,) * 9 + (True,),
        "mlp_bias": (False,) * 9 + (True,),
    },
    "hunyuan_v1_moe": {
        **_HEADS, **_without(_EXPERTS, "num_experts_per_tok"),
        "head_dim": (8, 16, 32), "attention_bias": (False, True), "intermediate_size": (16, 48),
        "num_experts": (4, 8), "moe_topk": (1, 2, 3, [2, 2, 2], [1, 2, 3]),
        "rope_parameters": (
            *_ROPES,
            {"rope_type": "dynamic", "rope_theta": 900.0, "factor": 1.0, "alpha": 50.0},
        ),
    },
    "arcee": {**_without(_HEADS, "hidden_act"), "attention_bias": (False, True),
              "hidden_act": ("relu2",) * 9 + ("silu",), "mlp_bias": (False,) * 9 + (True,)},
    "gemma": {
        **_without(_HEADS, "hidden_act"), "head_dim": (8, 16, 32), "attention_bias": (False, True),
        "hidden_act": (*("gelu_pytorch_tanh",) * 5, "gelu", "silu"),
        "use_bidirectional_attention": (None,) * 6 + (True,),
    },
    "step3p5": _STEP,
    "step3p7": _STEP,
    "minimax_m3_vl": {
        **_without(_HEADS, "hidden_act"), **_EXPERTS, "num_hidden_layers": (3,), "head_dim": (8, 16, 32),
        "tie_word_embeddings": (False,) * 19 + (True,), "rope_parameters": _WHOLE_ROPES,
        "intermediate_size": (16, 32), "shared_intermediate_size": (None,) * 19 + (48,),
        "dense_intermediate_size": (48, 96), "num_local_experts": (4, 8),
        "routed_scaling_factor": (1.0, 2.0, 3.0), "swiglu_alpha": (1.702, 0.5), "swiglu_limit": (0.3, 7.0),
        "layer_types": (
            *(["full_attention", *(["minimax_m3_sparse"] * 2)], ["minimax_m3_sparse"] * 3),
            *(["minimax_m3_sparse", "full_attention", "minimax_m3_sparse"], ["full_attention"] * 3),
        ),
        "mlp_layer_types": (["dense", "sparse", "sparse"], ["sparse"] * 3, ["sparse", "dense", "dense"]),
        "index_n_heads": (None,) * 19 + (1,), "index_head_dim": (None,) * 19 + (32,),
        "index_block_size": (1, 3, 4, 7), "index_topk_blocks": (1, 2, 3, 5),
        "index_local_blocks": (0, 1, 1, 2),
    },
    "kimi_k25": {**_LATENT, "rope_parameters": _MSCALES, "rope_interleave": (True, False)},
    "kimi_vl": {**_LATENT, "rope_parameters": _MSCALES, "q_lora_rank": (None, 24)},
    "internvl_chat": {**_HEADS, **_OPTIONAL_WINDOW, "max_window_layers": (0, 1, 9)},
}  # fmt: skip


# What is as large as another where it is not drawn by itself.
_ALIKE = {
    "minimax_m3_vl": {
        "index_n_heads": "num_key_value_heads",
        "index_head_dim": "head_dim",
        "shared_intermediate_size": "intermediate_size",
    }
}


@dataclass(frozen=True, slots=True)
class Outcome:
    told: dict[str, Any]
    said: str  # "equal", or who refused and why
    worst: float = 0.0

    @property
    def kind(self) -> str:
        return self.said.partition(":")[0]


def draw(family: str, dice: random.Random) -> dict[str, Any]:
    """None is said of what may be none, and leaves out what else there is."""
    drawn = {name: dice.choice(choices) for name, choices in SPACES[family].items()}
    told = {name: value for name, value in drawn.items() if value is not None or name in _NULLABLE}
    told |= {name: told[other] for name, other in _ALIKE.get(family, {}).items() if name not in told}
    return copy.deepcopy(told)  # transformers writes into what it is given


def compare(family: str, told: dict[str, Any], folder: Path) -> Outcome:
    try:
        model = make_reference(family, **told)
        texts = prompts(*_LENGTHS)
        want = [reference_logits(model, text)[-STEPS - 1 :] for text in texts]
    except Exception as error:
        return Outcome(told, f"transformers refused: {type(error).__name__}: {error}")
    save(model, folder)
    try:
        one = ParallelConfig()
        rows = Generation(folder, one, make_runtime(), VirtualCommunicator(one)).run(texts, STEPS)
    except ConfigError as error:
        return Outcome(told, f"refused by name: {error}")
    worst = max(float((torch.stack(rows[i]) - want[i]).abs().max()) for i in range(len(texts)))
    largest = max(float(rows_of_one.abs().max()) for rows_of_one in want)
    if worst <= TOLERANCE * max(1.0, largest / LARGE):
        return Outcome(told, "equal", worst)
    own = _own_error(model, texts, want)
    if worst <= 2 * own:
        return Outcome(told, f"beyond fp32: transformers is {own:.1e} off from its own fp64", worst)
    return Outcome(told, f"DIFFERENT: by {worst:.3g}", worst)


def _own_error(model: Any, texts: list[list[int]], want: list[torch.Tensor]) -> float:
    """How far transformers' answers are from what it answers in fp64."""
    whole = copy.deepcopy(model).double()
    for config in (whole.config, whole.config.get_text_config()):
        config._experts_implementation = "eager"  # whose others know no fp64
    torch.set_default_dtype(torch.float64)
    try:
        rows = [reference_logits(whole, text)[-STEPS - 1 :] for text in texts]
    finally:
        torch.set_default_dtype(torch.float32)
    return max(float((a - b).abs().max()) for a, b in zip(rows, want, strict=True))


def outcomes(family: str, count: int, seed: int) -> Iterator[Outcome]:
    dice = random.Random(f"{family} {seed}")
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            yield compare(family, draw(family, dice), Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=SPACES, action="append")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    asked, differ = parser.parse_args(), 0
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    for family in asked.family or SPACES:
        found = list(outcomes(family, asked.count, asked.seed))
        counts, worst = Counter(one.kind for one in found), max(one.worst for one in found)
        print(f"{family:14} {dict(counts)}, worst {worst:.1e}", flush=True)
        for one in found:
            if one.kind == "DIFFERENT":
                differ += 1
                print(f"  {one.said}: {one.told}")
        for said, many in Counter(one.said for one in found if one.kind != "equal").most_common():
            print(f"  {many} x {said[:160]}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
