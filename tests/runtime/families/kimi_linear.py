from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["kimi_linear"] = Tiny(
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
        "linear_attn_config": sizes.delta_layers([1]),
    },
    {
        **choices.without(
            choices.HEADS, "head_dim", "num_attention_heads", "num_key_value_heads", "rope_parameters"
        ),
        "num_hidden_layers": (3,),
        "num_attention_heads": (4,),
        "tie_word_embeddings": (False,) * 9 + (True,),
        "linear_attn_config": tuple(
            sizes.delta_layers(deltas, 3, num_heads=heads, head_dim=width, short_conv_kernel_size=taps)
            for deltas, heads, width, taps in (
                ([1, 3], 4, 8, 4),
                ([1], 8, 16, 3),
                ([2, 3], 4, 16, 2),
                ([1, 2], 2, 32, 4),
                ([3], 4, 8, 3),
            )
        ),
        "kv_lora_rank": (16, 32),
        "qk_nope_head_dim": (8, 16),
        "qk_rope_head_dim": (4, 8),
        "v_head_dim": (8, 16, 24),
        "q_lora_rank": (None,) * 9 + (24,),
        "attention_bias": (False,) * 9 + (True,),
        "num_experts": (8, 16),
        "num_experts_per_token": (1, 2, 3),
        "moe_intermediate_size": (16, 32),
        "num_shared_experts": (1, 2),
        "routed_scaling_factor": (1.0, 2.446),
        "num_expert_group": (1, 2, 4),
        "topk_group": (1, 2),
        "moe_renormalize": (True, False),
        "first_k_dense_replace": (0, 1, 9),
        "model_max_length": (128, 256),
    },
)
