"""Sizes of tiny models that several families have."""

from __future__ import annotations

from typing import Any

VOCAB = 99
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LATENT = {
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
SPARSE = {
    "index_topk": 6,
    "index_n_heads": 16,
    "index_head_dim": 16,
    "mlp_layer_types": ["dense", "sparse"],
}
QWEN_MOE = {"head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
GRANITE = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 0.5,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "pad_token_id": None,
}
BAILING = {
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "use_bias": False,
    "tie_word_embeddings": False,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
TOWER = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 64}
MROPE = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 3, 3]}
PIXTRAL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}


def delta_layers(deltas: list[int], layers: int = 2, **sizes: int) -> dict[str, Any]:
    """Kimi's section for them, whose layers count from one."""
    full = [one for one in range(1, layers + 1) if one not in deltas]
    usual = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4}
    return {"kda_layers": deltas, "full_attn_layers": full, **usual, **sizes}
