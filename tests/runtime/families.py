"""Tiny transformers models of every family, with weights so large that every part shows in the logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.runtime import classless

VOCAB = 99
_COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
# So many heads that no two scores are equal: a tie would be a choice.
_SPARSE = {
    "index_topk": 6,
    "index_n_heads": 16,
    "index_head_dim": 16,
    "mlp_layer_types": ["dense", "sparse"],
}
_QWEN_MOE = {"head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_DELTA = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}

_GRANITE = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 0.5,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "pad_token_id": None,
}

_BAILING = {
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "use_bias": False,
    "tie_word_embeddings": False,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


def delta_layers(deltas: list[int], layers: int = 2, **sizes: int) -> dict[str, Any]:
    """Kimi's section for them, whose layers count from one."""
    full = [one for one in range(1, layers + 1) if one not in deltas]
    usual = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4}
    return {"kda_layers": deltas, "full_attn_layers": full, **usual, **sizes}


# name -> (transformers config class, what differs from the common sizes)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "LlamaConfig",
        {
            "attention_bias": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "mistral": ("MistralConfig", {"head_dim": 16, "sliding_window": 7}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3MoeConfig", {**_QWEN_MOE, "norm_topk_prob": True, "mlp_only_layers": [0]}),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "mlp_only_layers": [0],
        },
    ),
    "minimax_m2": (
        "MiniMaxM2Config",
        {
            "head_dim": 32,
            "rotary_dim": 16,  # transformers before 5.23 reads the factor alone
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", {**_LATENT}),
    "exaone4": ("Exaone4Config", {"head_dim": 32, "sliding_window": 6, "sliding_window_pattern": 2}),
    "exaone_moe": (
        "ExaoneMoeConfig",
        {
            "head_dim": 32,
            "sliding_window": 6,
            "sliding_window_pattern": 2,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "phi3": ("Phi3Config", {"pad_token_id": None}),
    "mellum": (
        "MellumConfig",
        {**_QWEN_MOE, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6},
    ),
    "glm4": ("Glm4Config", {"head_dim": 32, "pad_token_id": None}),
    "olmo2": ("Olmo2Config", {}),
    "olmoe": ("OlmoeConfig", {"num_experts": 8, "num_experts_per_tok": 2}),
    "ernie4_5": ("Ernie4_5Config", {"head_dim": 32}),
    "ernie4_5_moe": (
        "Ernie4_5_MoeConfig",
        {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 2},
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            **_DELTA,
            **_QWEN_MOE,
            "shared_expert_intermediate_size": 48,
            "full_attention_interval": 2,
        },
    ),
    "qwen3_5_text": (
        "Qwen3_5TextConfig",
        {**_DELTA, "head_dim": 32, "full_attention_interval": 2},
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeTextConfig",
        {
            **_DELTA,
            **_QWEN_MOE,
            "shared_expert_intermediate_size": 48,
            "full_attention_interval": 2,
        },
    ),
    "nemotron_h": (
        "NemotronHConfig",
        {
            "head_dim": 32,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
            "ssm_state_size": 16,
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "n_groups": 4,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 48,
            "moe_latent_size": 24,
        },
    ),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "glm4_moe": (
        "Glm4MoeConfig",
        {
            "head_dim": 32,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "attention_bias": True,
            "n_group": 1,
            "topk_group": 1,
        },
    ),
    "gemma2": (
        "Gemma2Config",
        {
            "head_dim": 16,
            "sliding_window": 6,
            "query_pre_attn_scalar": 20,
            "final_logit_softcapping": 5.0,
            "attn_logit_softcapping": 3.0,
        },
    ),
    "gemma3_text": (
        "Gemma3TextConfig",
        {"head_dim": 32, "sliding_window": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20},
    ),
    "gemma4_text": (
        "Gemma4TextConfig",
        {
            "head_dim": 16,
            "global_head_dim": 32,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
            "final_logit_softcapping": 5.0,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "llama4_text": (
        "Llama4TextConfig",
        {
            "head_dim": 16,
            "intermediate_size": 48,
            "intermediate_size_mlp": 96,
            "num_local_experts": 8,
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 0],
            "attention_chunk_size": 6,
            "floor_scale": 4,
        },
    ),
    "ministral3": (
        "Ministral3Config",
        {"head_dim": 16, "rope_parameters": {**_YARN, "llama_4_scaling_beta": 0.3}},
    ),
    "hunyuan_v1_dense": ("HunYuanDenseV1Config", {"head_dim": 16}),
    "deepseek_v2": (
        "DeepseekV2Config",
        {
            **_LATENT,
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 4.0,
            "first_k_dense_replace": 1,
        },
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1Config",
        {"head_dim": 16, "num_experts": 8, "moe_topk": 2, "intermediate_size": 32},
    ),
    "arcee": ("ArceeConfig", {"head_dim": 16, "attention_bias": True}),
    "gemma": ("GemmaConfig", {"head_dim": 16}),
    "step3p5": (
        "Step3p7TextConfig",
        {
            "head_dim": 16,
            "num_sliding_attention_heads": 8,
            "layer_types": ["full_attention", "sliding_attention"],
            "sliding_window": 6,
            "mlp_layer_types": ["dense", "sparse"],
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "share_expert_dim": 48,
            "moe_router_scaling_factor": 1.5,
            "swiglu_limits": [0.0, 0.5],
            "swiglu_limits_shared": [0.7, 0.4],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 900.0, "partial_rotary_factor": 0.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
            },
        },
    ),
    "granite": ("GraniteConfig", {**_GRANITE}),
    "granitemoe": ("GraniteMoeConfig", {**_GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "granitemoehybrid": (
        "GraniteMoeHybridConfig",
        {
            **_GRANITE,
            "layer_types": ["linear_attention", "full_attention"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "shared_intermediate_size": 48,
            "mamba_n_heads": 8,
            "mamba_n_groups": 4,
            "mamba_d_state": 16,
        },
    ),
    "falcon_h1": (
        "FalconH1Config",
        {
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
            "pad_token_id": None,
            "mamba_d_ssm": 64,
            "mamba_n_heads": 8,
            "mamba_n_groups": 4,
            "mamba_d_state": 16,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "embedding_multiplier": 3.0,
            "lm_head_multiplier": 0.5,
            "key_multiplier": 0.4,
            "attention_in_multiplier": 0.7,
            "attention_out_multiplier": 1.3,
            "ssm_in_multiplier": 0.8,
            "ssm_out_multiplier": 0.6,
            "ssm_multipliers": [0.5, 1.5, 0.7, 1.2, 0.9],
            "mlp_multipliers": [0.9, 0.4],
        },
    ),
    "cohere": ("CohereConfig", {"logit_scale": 0.3, "pad_token_id": None}),
    "cohere2": (
        "Cohere2Config",
        {
            "logit_scale": 0.3,
            "pad_token_id": None,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "cohere2_moe": (
        "Cohere2MoeConfig",
        {
            "logit_scale": 0.3,
            "pad_token_id": None,
            "head_dim": 32,
            "sliding_window": 6,
            "first_k_dense_replace": 1,
            "prefix_dense_intermediate_size": 48,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_shared_experts": 2,
            "expert_selection_fn": "sigmoid",
        },
    ),
    "mimo_v2_flash": (
        "MiMoV2FlashConfig",
        {
            "head_dim": 24,
            "v_head_dim": 16,
            "sliding_window": 6,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
        },
    ),
    "laguna": (
        "LagunaConfig",
        {
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "layer_types": ["full_attention", "sliding_attention"],
            "num_attention_heads_per_layer": [4, 8],
            "sliding_window": 6,
        },
    ),
    "afmoe": (
        "AfmoeConfig",
        {
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_shared_experts": 1,
            "num_dense_layers": 1,
            "moe_intermediate_size": 32,
            "route_scale": 1.5,
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 6,
            "mup_enabled": True,
        },
    ),
    "hy_v3": (
        "HYV3Config",
        {
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "qk_norm": True,
            "route_norm": True,
        },
    ),
    "lfm2": (
        "Lfm2Config",
        {
            "layer_types": ["conv", "full_attention"],
            "conv_bias": True,
            "block_multiple_of": 16,
            "tie_word_embeddings": False,
        },
    ),
    "lfm2_moe": (
        "Lfm2MoeConfig",
        {
            "layer_types": ["conv", "full_attention"],
            "num_dense_layers": 1,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
    ),
    "internlm2": (
        "InternLM2Config",
        {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "bias": False, "tie_word_embeddings": False},
    ),
    "bailing_moe": (
        "BailingMoeConfig",
        {
            **_BAILING,
            "norm_topk_prob": True,
            "num_shared_experts": 2,
            "norm_head": True,
        },
    ),
    "bailing_moe_v2": (
        "BailingMoeV2Config",
        {
            **_BAILING,
            "norm_topk_prob": True,
            "num_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "moe_router_enable_expert_bias": True,
            "score_function": "sigmoid",
            "use_qk_norm": True,
            "rotary_dim": 8,
            "router_dtype": "fp32",
        },
    ),
    "bailing_hybrid": (
        "BailingMoeV2_5Config",
        {
            **_BAILING,
            "num_key_value_heads": 4,
            "num_hidden_layers": 4,
            "num_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 2.5,
            "moe_router_enable_expert_bias": True,
            "use_qk_norm": True,
            "partial_rotary_factor": 0.5,
            "layer_group_size": 2,
            "group_norm_size": 4,
            **{name: _LATENT[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")},
            "v_head_dim": 16,
            "q_lora_rank": 24,
        },
    ),
    "bailing_hybrid_v3": (
        "BailingHybridConfig",
        {
            **{
                name: value
                for name, value in _LATENT.items()
                if name not in ("q_lora_rank", "n_routed_experts")
            },
            "num_hidden_layers": 4,
            "layer_group_size": 2,
            "head_dim": 16,
            "num_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "kda_lower_bound": -3.0,
            "pad_token_id": None,
            "eos_token_id": None,
        },
    ),
    "deepseek_v4": (
        "DeepseekV4Config",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "qk_rope_head_dim": 8,
            "q_lora_rank": 24,
            "o_groups": 2,
            "o_lora_rank": 16,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "swiglu_limit": 0.5,
            "sliding_window": 6,
            "compress_ratios": [0, 4, 128],
            "num_hash_layers": 1,
            "index_n_heads": 16,
            "index_head_dim": 16,
            "index_topk": 2,
            "rope_scaling": {**_YARN, "rope_type": "yarn"},
        },
    ),
    "kimi_linear": (
        "KimiLinearConfig",
        {
            "num_key_value_heads": 4,
            "model_max_length": 128,
            "max_position_embeddings": 128,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "num_experts": 8,
            "num_experts_per_token": 2,
            "num_shared_experts": 1,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
            "pad_token_id": None,
            "linear_attn_config": delta_layers([1]),
        },
    ),
    "gpt_oss": (
        "GptOssConfig",
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 6,
            "rope_parameters": {**_YARN, "truncate": False},
        },
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        {
            **_LATENT,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "longcat_flash": (
        "LongcatFlashConfig",
        {
            **{name: _LATENT[name] for name in ("q_lora_rank", "kv_lora_rank", "v_head_dim")},
            **{name: _LATENT[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim")},
            "num_key_value_heads": 4,
            "num_layers": 2,
            "ffn_hidden_size": 96,
            "expert_ffn_hidden_size": 32,
            "n_routed_experts": 8,
            "zero_expert_num": 4,
            "moe_topk": 3,
            "routed_scaling_factor": 2.5,
        },
    ),
    "deepseek_v32": ("DeepseekV32Config", {**_LATENT, **_SPARSE, "n_group": 4, "topk_group": 2}),
    "glm_moe_dsa": ("GlmMoeDsaConfig", {**_LATENT, **_SPARSE, "n_group": 1, "topk_group": 1}),
}
_TOWER = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 64}
_MROPE = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 3, 3]}
_HALF = {**_MROPE, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}
_PIXTRAL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}

# name -> (config class of the whole, of its text_config, and its vision_config)
WRAPPED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen2_vl": (
        "Qwen2VLConfig",
        {"rope_parameters": _MROPE},
        {"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": 64},
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLConfig",
        {"rope_parameters": _MROPE, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
        _TOWER,
    ),
    "qwen3_vl": (
        "Qwen3VLConfig",
        {"rope_parameters": _MROPE, "head_dim": 16},
        {**_TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoeConfig",
        {"rope_parameters": _MROPE, **_QWEN_MOE, "head_dim": 16},
        {**_TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
    "qwen3_omni_moe": (
        "Qwen3OmniMoeThinkerConfig",
        {"model_type": "qwen3_omni_moe_text", "rope_parameters": _MROPE, **_QWEN_MOE, "head_dim": 16},
        {**_TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
    "qwen3_5": (
        "Qwen3_5Config",
        {**FAMILIES["qwen3_5_text"][1]},
        {**_TOWER, "num_position_embeddings": 64},
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeConfig",
        {**FAMILIES["qwen3_5_moe_text"][1]},
        {**_TOWER, "num_position_embeddings": 64},
    ),
    "glm4v": ("Glm4vConfig", {"rope_parameters": _HALF}, _TOWER),
    "glm46v": ("Glm46VConfig", {"rope_parameters": _HALF}, _TOWER),
    "glm4v_moe": (
        "Glm4vMoeConfig",
        {
            "rope_parameters": _HALF,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_group": 2,
            "topk_group": 1,
        },
        _TOWER,
    ),
    "llama4": (
        "Llama4Config",
        {**FAMILIES["llama4_text"][1]},
        {
            **_PIXTRAL,
            "image_size": 56,
            "projector_input_dim": 24,
            "projector_output_dim": 24,
            "vision_output_dim": 24,
        },
    ),
    "step3p7": (
        "Step3p7Config",
        {**FAMILIES["step3p5"][1]},
        {**_PIXTRAL, "image_size": 56, "mlp_ratio": 1.5},
    ),
    "gemma4": (
        "Gemma4Config",
        {**FAMILIES["gemma4_text"][1]},
        {**_PIXTRAL, "head_dim": 8, "num_key_value_heads": 2, "position_embedding_size": 64},
    ),
    "gemma3": (
        "Gemma3Config",
        {"head_dim": 32, "sliding_window": 6, "query_pre_attn_scalar": 20},
        {
            **_PIXTRAL,
            "model_type": "siglip_vision_model",
            "vision_use_head": False,
            "image_size": 112,
            "patch_size": 14,
        },
    ),
    "cohere2_vision": (
        "Cohere2VisionConfig",
        {
            "model_type": "cohere2_moe",
            **FAMILIES["cohere2_moe"][1],
            "logit_scale": 1.0,
            "tie_word_embeddings": True,
        },
        {**_PIXTRAL, "model_type": "siglip_vision_model", "image_size": 112, "patch_size": 14},
    ),
    "lfm2_vl": (
        "Lfm2VlConfig",
        {"model_type": "lfm2", **FAMILIES["lfm2"][1]},
        {**_PIXTRAL, "model_type": "siglip2_vision_model", "vision_use_head": False, "patch_size": 4},
    ),
    "mistral3": (
        "Mistral3Config",
        {"model_type": "mistral", "head_dim": 16},
        {**_PIXTRAL, "model_type": "pixtral"},
    ),
    "kimi_k25": (
        "Kimi_K25Config",
        {"model_type": "deepseek_v3", **_LATENT, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1},
        {**_PIXTRAL, "pos_emb_height": 4, "pos_emb_width": 4},
    ),
    "minimax_m3_vl": (
        "MiniMaxM3VLConfig",
        {
            "head_dim": 32,
            "intermediate_size": 32,
            "shared_intermediate_size": 32,
            "dense_intermediate_size": 96,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
            "layer_types": ["full_attention", "minimax_m3_sparse"],
            "mlp_layer_types": ["dense", "sparse"],
            "index_n_heads": 2,
            "index_head_dim": 32,
            "index_block_size": 4,
            "index_topk_blocks": 2,
            "swiglu_limit": 0.5,
            "swiglu_alpha": 1.3,
        },
        {**_PIXTRAL, "patch_size": 4, "image_size": 56},
    ),
    "kimi_vl": (
        "Kimi_K25Config",
        {"model_type": "deepseek_v3", **_LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1},
        {**_PIXTRAL, "pos_emb_height": 4, "pos_emb_width": 4},
    ),
    "internvl_chat": (
        "InternVLConfig",
        {"model_type": "qwen2"},
        {**_PIXTRAL, "image_size": [56, 56], "attention_bias": True},
    ),
}
# Of the whole that transformers has them inside of.
_INSIDE = {"step3p5": "step3p7"}
_BESIDE = {name: {"projection_hidden_size": 16} for name in ("kimi_k25", "kimi_vl")}
_BESIDE["minimax_m3_vl"] = {"projector_hidden_size": 24}
_BESIDE["lfm2_vl"] = {"projector_hidden_size": 24}
_BESIDE["qwen3_omni_moe"] = {
    "audio_config": {
        **{"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24},
        **{"downsample_hidden_size": 8, "num_mel_bins": 20, "output_dim": 64},
    }
}
_BESIDE["gemma4"] = {
    "audio_config": {
        **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "output_proj_dims": 24},
        "subsampling_conv_channels": [128, 4],
    }
}
_BESIDE["cohere2_vision"] = {"alignment_intermediate_size": 24}
_LLMS = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
_LLMS |= {"gpt_oss": "GptOssForCausalLM"}
MOE_FAMILIES = tuple(name for name, (_, own) in FAMILIES.items() if any("experts" in one for one in own))


# Common sizes that a class has under other names, and would take both of.
_SPELLED_APART = {"longcat_flash": ("num_hidden_layers", "intermediate_size")}


def sizes_of(name: str, **changes: Any) -> dict[str, Any]:
    """What its config class is told."""
    common = {one: size for one, size in _COMMON.items() if one not in _SPELLED_APART.get(name, ())}
    sizes = {**common, **FAMILIES[name][1], **changes}
    if name == "longcat_flash":  # whose class turns so much of a head
        sizes["head_dim"] = sizes["qk_rope_head_dim"]
    return sizes


def make_reference(name: str, vision: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A transformers model in fp32 with eager attention; `vision` changes a multimodal model's encoder."""
    import transformers

    if name in classless.CLASSLESS:
        return classless.make(name, {**_COMMON, **FAMILIES[name][1], **changes}, _randomize)
    if name in _INSIDE:
        whole = make_reference(_INSIDE[name], **{**FAMILIES[name][1], **changes})
        whole.model.vision_model = whole.model.multi_modal_projector = None
        whole.saved_as = {"architectures": [], **whole.config.text_config.to_dict(), "model_type": name}
        return whole
    if name in WRAPPED:
        config, auto = _wrapped(name, changes, vision or {}), "AutoModelForImageTextToText"
    else:
        config = getattr(transformers, FAMILIES[name][0])(**sizes_of(name, **changes))
        auto = "AutoModelForCausalLM"
    config._attn_implementation = "eager"
    model = getattr(transformers, auto).from_config(config).float().eval()
    _randomize(model)
    if name in _AS_PUBLISHED:
        model.saved_as = _AS_PUBLISHED[name](model.config.to_dict())
    return model


def config_json(model: Any) -> dict[str, Any]:
    """As its checkpoint has it."""
    told: dict[str, Any] = json.loads(json.dumps(getattr(model, "saved_as", None) or model.config.to_dict()))
    return told


def _kimi_vl(hf: dict[str, Any]) -> dict[str, Any]:
    """What transformers has as a Kimi-K2.5; a text that tells all that its class leaves open."""
    text = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", **hf["text_config"]}
    vision = {**hf["vision_config"], "model_type": "moonvit"}
    for side in ("height", "width"):
        vision[f"init_pos_emb_{side}"] = vision.pop(f"pos_emb_{side}")
    return {
        "model_type": "kimi_vl",
        "architectures": ["KimiVLForConditionalGeneration"],
        "text_config": text,
        "vision_config": vision,
    }


def _minimax_m3_vl(hf: dict[str, Any]) -> dict[str, Any]:
    """Under the names that transformers takes, and writes as others; what its classes never ask is told."""
    text, vision = dict(hf["text_config"]), dict(hf["vision_config"])
    sparse = [int(kind == "minimax_m3_sparse") for kind in text.pop("layer_types")]
    routed = [int(kind == "sparse") for kind in text.pop("mlp_layer_types")]
    blocks = {
        "sparse_num_index_heads": text.pop("index_n_heads"),
        "sparse_index_dim": text.pop("index_head_dim"),
        "sparse_block_size": text.pop("index_block_size"),
        "sparse_topk_blocks": text.pop("index_topk_blocks"),
        "sparse_local_block": text.pop("index_local_blocks"),
        "sparse_init_block": 0,
        "sparse_disable_index_value": sparse,
        "sparse_attention_freq": sparse,
    }
    share = text["rope_parameters"].get("partial_rotary_factor", 1.0)
    said = {"use_gemma_norm": True, "qk_norm_type": "per_head", "scoring_func": "sigmoid"}
    said |= {"use_routing_bias": True, "n_shared_experts": 1, "hidden_act": "swigluoai"}
    text |= {**said, "moe_layer_freq": routed, "rotary_dim": int(text["head_dim"] * share)}
    text |= {"architectures": ["MiniMaxM3SparseForCausalLM"], "sparse_attention_config": blocks}
    squeezed = {name: vision.pop(name) for name in ("temporal_patch_size", "spatial_merge_size")}
    vision |= {"model_type": "clip_vision_model", "img_token_compression_config": squeezed}
    vision |= {"position_embedding_type": "rope", "rope_mode": "3d", "vision_segment_max_frames": None}
    del text["model_type"]
    return {
        "model_type": "minimax_m3_vl",
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "projector_hidden_size": hf["projector_hidden_size"],
        "tie_word_embeddings": hf["tie_word_embeddings"],
        "text_config": text,
        "vision_config": vision,
    }


def _internvl_chat(hf: dict[str, Any]) -> dict[str, Any]:
    """transformers rewrites these files, and has the same layers under other names."""
    vision, text = hf["vision_config"], hf["text_config"]
    vision = {**vision, "model_type": "intern_vit_6b", "qk_normalization": vision["use_qk_norm"]}
    vision |= {"qkv_bias": vision.pop("attention_bias")}
    return {
        "model_type": "internvl_chat",
        "architectures": ["InternVLChatModel"],
        "downsample_ratio": hf["downsample_ratio"],
        "llm_config": {**text, "architectures": [_LLMS[text["model_type"]]]},
        "vision_config": vision,
    }


def _qwen3_omni_moe(hf: dict[str, Any]) -> dict[str, Any]:
    """Inside of what speaks as well, which SGLang leaves out."""
    architectures = ["Qwen3OmniMoeForConditionalGeneration"]
    return {"model_type": "qwen3_omni_moe", "architectures": architectures, "thinker_config": hf}


def _with_count(hf: dict[str, Any]) -> dict[str, Any]:
    """With the count that SGLang goes by, which transformers takes and does not write."""
    return {**hf, "first_k_dense_replace": hf["mlp_layer_types"].count("dense")}


def _longcat_flash(hf: dict[str, Any]) -> dict[str, Any]:
    """With the base apart from what stretches it, where anything does."""
    rope = {**hf["rope_parameters"]}
    base = rope.pop("rope_theta")
    stretched = rope if rope["rope_type"] != "default" else None
    return {**hf, "rope_theta": base, "rope_scaling": stretched, "rope_parameters": None}


def _cohere2_vision(hf: dict[str, Any]) -> dict[str, Any]:
    return {**hf, "text_config": _with_count(hf["text_config"])}


def _deepseek_v4(hf: dict[str, Any]) -> dict[str, Any]:
    """Under the names that transformers takes, and writes as others."""
    ratios = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    kept = {name: value for name, value in hf.items() if name not in ("rope_parameters", "mlp_layer_types")}
    compress = hf["rope_parameters"]["compress"]
    stretch = {
        name: compress[name] for name in compress if name not in ("rope_theta", "partial_rotary_factor")
    }
    return {
        **kept,
        "compress_ratios": [ratios[kind] for kind in kept.pop("layer_types")],
        "num_hash_layers": hf["mlp_layer_types"].count("hash_moe"),
        "rope_scaling": stretch,
    }


def _bailing_v3(hf: dict[str, Any]) -> dict[str, Any]:
    """Under a checkpoint's names, with what transformers' class has no field for."""
    published = {
        **{"num_expert_group": "n_group", "num_experts_per_token": "num_experts_per_tok"},
        **{"moe_renormalize": "norm_topk_prob", "model_max_length": "max_position_embeddings"},
        "linear_head_dim": "head_dim",
    }
    kept = {name: value for name, value in hf.items() if name not in ("head_dim", *published)}
    return {
        **kept,
        **{name: hf[own] for own, name in published.items()},
        "architectures": ["BailingMoeV3ForCausalLM"],
        "gated_attention_proj_granularity_type": "head_wise",
        **{"moe_router_enable_expert_bias": True, "no_kda_lora": True, "router_dtype": "fp32"},
    }


_AS_PUBLISHED = {"minimax_m3_vl": _minimax_m3_vl, "kimi_vl": _kimi_vl, "internvl_chat": _internvl_chat}
_AS_PUBLISHED |= dict.fromkeys(("cohere2_moe", "hy_v3"), _with_count)
_AS_PUBLISHED["qwen3_omni_moe"] = _qwen3_omni_moe
_AS_PUBLISHED["cohere2_vision"] = _cohere2_vision
_AS_PUBLISHED["deepseek_v4"] = _deepseek_v4
_AS_PUBLISHED["longcat_flash"] = _longcat_flash
_AS_PUBLISHED["bailing_hybrid_v3"] = _bailing_v3


def _wrapped(name: str, changes: dict[str, Any], tower: dict[str, Any]) -> Any:
    import transformers

    cls, text, vision = WRAPPED[name]
    section = {**_COMMON, "tie_word_embeddings": False, **text, **changes}
    ties = bool(section.get("tie_word_embeddings"))
    return getattr(transformers, cls)(
        text_config=section,
        vision_config={**vision, **tower},
        **_BESIDE.get(name, {}),
        tie_word_embeddings=ties,
    )


def tensors(model: Any) -> dict[str, torch.Tensor]:
    """Under the names that they have in a checkpoint, where its class has them under others."""
    if hasattr(model, "classless"):
        return classless.tensors(model)
    named = dict(model.named_parameters())
    if model.config.model_type != "bailing_hybrid":
        return named
    renamed = {
        **{".self_attn.o_proj.": ".attention.dense.", ".self_attn.forget_gate.": ".attention."},
        **{".self_attn.": ".attention.", "model.embed_tokens.": "model.word_embeddings."},
    }
    for own, other in renamed.items():
        named = {name.replace(own, other): tensor for name, tensor in named.items()}
    return named


def save(model: Any, folder: Path, **options: Any) -> Path:
    if hasattr(model, "classless"):
        return classless.save(model, folder)
    # Or its layers would be called blocks, as the tower's are; and some of V4's norms by one name.
    if model.config.model_type in ("kimi_k25", "deepseek_v4"):
        options.setdefault("save_original_format", False)
    model.save_pretrained(folder, **options)
    if hasattr(model, "saved_as"):
        (folder / "config.json").write_text(json.dumps(model.saved_as))
    if "thinker_config" in config_json(model):
        _name_within(folder / "model.safetensors", "thinker")
    return folder


def _name_within(file: Path, whole: str) -> None:
    from safetensors.torch import load_file, save_file

    save_file({f"{whole}.{name}": tensor for name, tensor in load_file(file).items()}, file)


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[tokens, vocab]: what each position predicts."""
    return model(torch.tensor([tokens])).logits[0]


def _most_experts(model: torch.nn.Module) -> int:
    return int(model.config.n_routed_experts)  # type: ignore[union-attr]


# Buffers that follow from sizes and fields.
_OF_THE_CONFIG = ("inv_freq", "embed_scale", "mup_vector")


def _randomize(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("tid2eid"):
            ranked = torch.rand(len(tensor), _most_experts(model), generator=generator).argsort(-1)
            tensor.data.copy_(ranked[:, : tensor.shape[1]])
        if not tensor.is_floating_point() or any(one in name for one in _OF_THE_CONFIG):
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name and name.endswith("weight"):
            tensor.data.add_(0.2 * noise)  # to the one, or the nought, that leaves a value as it is
        elif tensor.dim() < 2:
            tensor.data.copy_(0.3 * noise)
        elif "embed" in name:
            tensor.data.copy_(noise)
        else:
            tensor.data.copy_(noise * tensor.shape[-1] ** -0.5)
