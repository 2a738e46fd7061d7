from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RARE = 19
TINY: dict[str, Tiny] = {}
TINY["minicpm_sala"] = Tiny(
    "MiniCPMSALAConfig",
    {
        "num_hidden_layers": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "scale_emb": 3,
        "scale_depth": 1.4,
        "dim_model_base": 32,
        "mixer_types": ["minicpm4", "lightning-attn", "lightning-attn", "minicpm4"],
        **{"lightning_nh": 4, "lightning_nkv": 4, "lightning_head_dim": 128, "attn_use_rope": False},
        **dict.fromkeys(("use_output_gate", "use_output_norm", "attn_use_output_gate"), True),
    },
    {
        **choices.without(choices.HEADS, "rope_parameters", "num_hidden_layers"),
        "rope_theta": (300.0, 90000.0),
        "rope_scaling": (None,) * _RARE + ({"rope_type": "yarn", "factor": 2.0},),
        "tie_word_embeddings": (None, False, True),
        "scale_emb": (1, 3, 12),
        "scale_depth": (1, 1.4),
        "dim_model_base": (16, 64, 256),
        "mixer_types": (
            *(["attn", "lightning"], ["lightning_attn", "minicpm4", "standard"]) * 6,
            *(["minicpm"], ["lightning-attn"], ["minicpm4"] * 5),
        ),
        "lightning_nh": (4,) * _RARE + (8, None),
        "lightning_nkv": (4,) * _RARE + (8, None),
        "lightning_head_dim": (128, 128, 32, None),
        "lightning_scale": (None,) * _RARE + ("1/d",),
        **dict.fromkeys(
            (
                *("lightning_layerwise_decay", "lightning_use_rope", "use_output_gate", "use_output_norm"),
                *("qk_norm", "attn_use_rope", "attn_use_output_gate"),
            ),
            (None, True, False),
        ),
        "attention_bias": (None,) * _RARE + (True,),
    },
)
