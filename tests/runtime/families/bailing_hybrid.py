from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["bailing_hybrid"] = Tiny(
    "BailingMoeV2_5Config",
    {
        **sizes.BAILING,
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
        **{name: sizes.LATENT[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")},
        "v_head_dim": 16,
        "q_lora_rank": 24,
    },
    {
        **choices.without(
            choices.BAILING, "rotary_dim", "norm_head", "multi_gate", "use_rmsnorm", "num_hidden_layers"
        ),
        **{name: choices.LATENT[name] for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")},
        "v_head_dim": (8, 16, 24),
        "q_lora_rank": (None, 16, 24),
        "rms_norm_eps": (1e-6,) * 30 + (1e-2,),
        "num_hidden_layers": (4,) * 30 + (2, 3),
        "layer_group_size": (2, 4) * 24 + (1, 3),
        "num_attention_heads": (4, 8, 6),
        "group_norm_size": (1, 2, 4, 8),
        "rope_scaling": (None,) * 49 + ({"rope_type": "yarn", "factor": 4.0},),
        "rope_theta": (10000.0, 500.0),
        "rotary_dim": (None, None, 4, 8),
        "partial_rotary_factor": (0.5, 0.25, 1.0),
        "use_qk_norm": (True, False),
        "use_bias": (None,) * 49 + (True,),
        "use_qkv_bias": (None, False) * 24 + (True,),
        "tie_word_embeddings": (False,) * 49 + (True,),
        "norm_topk_prob": (None, True) * 24 + (False,),
        "num_experts_per_tok": (2, 3) * 24 + (1,),
        "num_shared_experts": (1, 2, 0),
        "first_k_dense_replace": (0, 1, 9),
        "routed_scaling_factor": (1.0, 2.5),
        "n_group": (2, 4),
        "topk_group": (1, 2),
        "router_dtype": (None, "fp32") * 24 + ("bf16",),
        "moe_shared_expert_intermediate_size": (None,),
        "score_function": (None, "sigmoid") * 24 + ("softmax",),
        "moe_router_enable_expert_bias": (True,) * 49 + (False,),
        "linear_silu": (None, False) * 24 + (True,),
        "hidden_act": ("silu",) * 49 + ("gelu",),
        "rope_interleave": (None, True) * 24 + (False,),
    },
)
