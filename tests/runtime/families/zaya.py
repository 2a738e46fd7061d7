from __future__ import annotations

from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["zaya"] = Tiny(
    "ZayaConfig",
    {
        "num_hidden_layers": 4,
        "head_dim": 16,
        **dict.fromkeys(("num_query_groups", "num_key_value_heads"), 4),
        "num_attention_heads": 8,
        "ffn_hidden_size": 64,
        "num_experts": 8,
        "zaya_mlp_expansion": 24,
        "norm_epsilon": 1e-5,
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": True,
    },
    {
        "num_hidden_layers": (2, 4, 6),
        "num_attention_heads": (4, 8),
        "num_key_value_heads": (1, 2, 4),
        "head_dim": (8, 16, 32),
        "norm_epsilon": (1e-6, 1e-2),
        "tie_word_embeddings": (False, True),
        "attention_bias": (False, True),
        "rope_theta": (10000.0, 500.0),
        "partial_rotary_factor": (0.5, 0.25, 1.0),
        "ffn_hidden_size": (32, 64),
        "num_experts": (4, 8),
        "zaya_mlp_expansion": (16, 24),
        "cca_time0": (2, 3),
        "cca_time1": (2, 3),
        "lm_head_bias": (*(False,) * 9, True),
        "clamp_temp": (*(False,) * 9, True),
        "zaya_use_mod": (*(True,) * 9, False),
        "zaya_use_eda": (*(True,) * 9, False),
        "moe_router_topk": (*(1,) * 14, 2),
        "sliding_window": (*(None,) * 9, 8),
    },
    alike={"num_query_groups": "num_key_value_heads"},
    spelled_apart=("intermediate_size",),
)
