from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RARE = 40

TINY: dict[str, Tiny] = {}
TINY["grok"] = Tiny(
    "LlamaConfig",
    {
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "embedding_multiplier_scale": 3.0,
        "output_multiplier_scale": 2.0,
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
        "attn_temperature_len": 7,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "residual_moe": True,
    },
    {
        **choices.without(choices.HEADS, "rope_parameters", "hidden_act", "tie_word_embeddings"),
        "head_dim": (8, 16, 32),
        "rope_parameters": (None, None, {"rope_theta": 500.0}),
        "rope_theta": (None, 300, 900.7),
        "rope_type": (None,) * _RARE + ("yarn_log",),
        "rope_rotate_half_dims": (None, False, True),
        "tie_word_embeddings": (None,) * _RARE + (True,),
        "embedding_multiplier_scale": (1.0, 9.0),
        "output_multiplier_scale": (1.0, 0.3),
        "attn_logit_softcapping": (None, 0.0, -1.0, 2.0, 30),
        "attn_logit_softcapping_method": (None,) * _RARE + ("relu",),
        "router_logit_softcapping": (None, 30.0, 30) * 9 + (20.0,),
        "final_logit_softcapping": (None, 4.0, 50, -1.0),
        "attn_temperature_len": (None, -1, 2, 5, 16, 1000),
        "num_local_experts": (2, 4, 8, 16) * 5 + (6,),
        "num_experts_per_tok": (1, 2) * 9 + (3,),
        "moe_intermediate_size": (None, 16, 32),
        "residual_moe": (None, False, True, True),
        "replicate_lm_head": (None,) * _RARE + (True,),
    },
)
