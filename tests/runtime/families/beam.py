from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_FULL, _BEHIND = "full_attention", "sliding_attention"
_ROPE = {_BEHIND: {"rope_type": "default", "rope_theta": 70.0}, _FULL: None}

TINY: dict[str, Tiny] = {}
TINY["beam"] = Tiny(
    "BeamConfig",
    {
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 32,
        "routed_scaling_factor": 1.5,
        "mlp_layer_types": ["dense", "sparse"],
        "sliding_window": 6,
        "final_logit_softcapping": 5.0,
        "rope_parameters": _ROPE,
    },
    {
        **choices.without(choices.HEADS, "hidden_act"),
        **choices.EXPERTS,
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "hidden_act": (*("silu",) * 19, "gelu"),
        "tie_word_embeddings": (*(False,) * 19, True),
        "attention_bias": (*(False,) * 19, True),
        "norm_topk_prob": (*(True,) * 19, False),
        "rope_parameters": (
            *(_ROPE, None) * 6,
            {_BEHIND: {"rope_type": "default", "rope_theta": 900}, _FULL: None},
        ),
        "num_experts": (8, 16),
        "n_group": (1, 2, 4),
        "topk_group": (1, 1, 2),
        "moe_intermediate_size": (16, 32),
        "routed_scaling_factor": (1, 2.5),
        "final_logit_softcapping": (None, 3.0, 30),
        "sliding_window": (2, 5, 64),
        "layer_types": (None, *([_FULL] + [_BEHIND] * 2,) * 3, [_FULL] * 3, [_BEHIND] * 3),
        "mlp_layer_types": (
            *(["dense", "sparse", "sparse"],) * 3,
            ["sparse"] * 3,
            ["sparse", "dense", "dense"],
        ),
    },
)
