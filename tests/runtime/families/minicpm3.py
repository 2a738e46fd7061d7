from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_LONG = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "short_factor": [1.0, 1.1, 1.3, 1.5],
    "long_factor": [1.0, 2.0, 3.0, 5.0],
    "original_max_position_embeddings": 32,
}

TINY: dict[str, Tiny] = {}
TINY["minicpm3"] = Tiny(
    "MiniCPM3Config",
    {
        "num_key_value_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "scale_emb": 3,
        "scale_depth": 1.2,
        "dim_model_base": 32,
    },
    {
        **choices.without(choices.COMMON, "rope_parameters"),
        "rope_parameters": (*choices.ROPES[:7], _LONG, _LONG, _LONG),
        "q_lora_rank": (None, 16, 24),
        "kv_lora_rank": (16, 32),
        "qk_nope_head_dim": (8, 16),
        "v_head_dim": (None,) * 9 + (8,),
        "scale_emb": (1, 12, 2.5),
        "scale_depth": (1.4, 1),
        "dim_model_base": (16, 256),
        "attention_bias": (*(False,) * 19, True),
        "mlp_bias": (*(False,) * 19, True),
    },
    alike={"num_key_value_heads": "num_attention_heads"},
)
