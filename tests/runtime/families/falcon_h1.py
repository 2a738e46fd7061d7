from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["falcon_h1"] = Tiny(
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
    {
        **choices.HEADS,
        "head_dim": (None, 8, 32),
        "hidden_act": ("silu",) * 19 + ("gelu",),
        "rope_parameters": (*({"rope_theta": 500.0, **rope} for rope in choices.ROPES if rope), None),
        "tie_word_embeddings": (False, True),
        **dict.fromkeys(("attention_bias", "mlp_bias"), (False,) * 29 + (True,)),
        "mamba_d_ssm": (None, 32, 64),
        "mamba_expand": (1, 2),
        "mamba_n_heads": (4, 8),
        "mamba_d_head": ("auto",) * 9 + (8,),
        "mamba_n_groups": (1, 2, 4),
        "mamba_d_state": (8, 16),
        "mamba_d_conv": (2, 3, 4),
        "mamba_chunk_size": (4, 8, 128),
        "mamba_conv_bias": (False, True),
        "mamba_proj_bias": (False,) * 19 + (True,),
        "projectors_bias": (False,) * 19 + (True,),
        "mamba_rms_norm": (False, True),
        "mamba_norm_before_gate": (False,) * 9 + (True,),
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
)
