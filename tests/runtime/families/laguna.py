from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["laguna"] = Tiny(
    "LagunaConfig",
    {
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "layer_types": ["full_attention", "sliding_attention"],
        "num_attention_heads_per_layer": [4, 8],
        "sliding_window": 6,
    },
    {
        **choices.without(choices.HEADS, "tie_word_embeddings"),
        **choices.EXPERTS,
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "tie_word_embeddings": (False,) * 19 + (True,),
        "attention_bias": (False, True),
        "gating": (True, "per-head", "per-element", *(True,) * 6, False),
        "num_attention_heads": (4,),
        "num_attention_heads_per_layer": ([4, 8, 8], [8, 4, 4], [4, 4, 4]),
        "layer_types": (
            *(["full_attention"] + ["sliding_attention"] * 2,) * 4,
            *(["full_attention"] * 3, ["sliding_attention"] * 3),
        ),
        "mlp_layer_types": (None, ["sparse"] * 3, ["sparse", "dense", "sparse"]),
        "sliding_window": (1, 5, 64),
        "rope_parameters": (None, *choices.ropes_by_kind(*choices.WHOLE_ROPES)),
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "shared_expert_intermediate_size": (16, 48),
        "moe_routed_scaling_factor": (1.0, 2.5),
        "moe_router_logit_softcapping": (0.0, 0.7, 30.0),
    },
)
