from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RARE = 40
TINY: dict[str, Tiny] = {
    "step3_text": Tiny(
        "Step3TextConfig",
        {
            **{"num_key_value_heads": 1, "max_seq_len": 128, "head_dim": 16, "share_q_dim": 24},
            **{"moe_num_experts": 8, "moe_top_k": 2, "moe_intermediate_size": 32, "share_expert_dim": 48},
            **{"moe_layers_enum": "1", "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
        },
        {
            **choices.without(choices.COMMON, "rope_parameters", "tie_word_embeddings", "hidden_act"),
            "num_hidden_layers": (3,),
            "head_dim": (8, 16, 32),
            "share_q_dim": (8, 24, 40),
            "moe_num_experts": (4, 8),
            "moe_top_k": (1, 2, 3),
            "moe_intermediate_size": (16, 32),
            "share_expert_dim": (16, 32, 48),
            "moe_layers_enum": ("1", "0,2", "1,2", "0,1,2,3"),
            "norm_expert_weight": (None, True, False),
            "rope_theta": (500.0, 10000.0),
            "rope_scaling": (None,) * _RARE + ({"type": "default"}, {"type": "linear", "factor": 2.0}),
            "tie_word_embeddings": (None,) * _RARE + (False, True),
            "hidden_act": (None,) * _RARE + ("silu", "gelu"),
            "num_attention_groups": (None,) * _RARE + (1, 2),
        },
    )
}
