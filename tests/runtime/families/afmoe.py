from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["afmoe"] = Tiny(
    "AfmoeConfig",
    {
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 1,
        "num_dense_layers": 1,
        "moe_intermediate_size": 32,
        "route_scale": 1.5,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 6,
        "mup_enabled": True,
    },
    {
        **choices.HEADS,
        **choices.EXPERTS,
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "tie_word_embeddings": (False,) * 19 + (True,),
        "attention_bias": (False,) * 19 + (True,),
        "num_experts": (4, 8),
        "num_shared_experts": (1, 2),
        "num_dense_layers": (0, 1, 2, 9),
        "moe_intermediate_size": (16, 32),
        "route_scale": (1.0, 2.826),
        "mup_enabled": (True, False),
        "sliding_window": (1, 5, 64),
        "layer_types": (
            *(["full_attention"] + ["sliding_attention"] * 2,) * 3,
            *(["full_attention"] * 3, ["sliding_attention"] * 3),
        ),
    },
)
