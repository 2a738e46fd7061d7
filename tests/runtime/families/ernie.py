from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["ernie4_5"] = Tiny(
    "Ernie4_5Config",
    {"head_dim": 32},
    {**choices.HEADS, "use_bias": (False,) * 5 + (True,)},
)
TINY["ernie4_5_moe"] = Tiny(
    "Ernie4_5_MoeConfig",
    {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 2},
    {
        **choices.HEADS,
        "moe_k": (1, 2, 3),
        "moe_num_experts": (4, 8),
        "moe_num_shared_experts": (0, 1, 2),
        "moe_intermediate_size": (16, 32),
        "moe_layer_start_index": (0, 1),
        "moe_layer_interval": (1, 2),
        "moe_layer_end_index": (-1, 0, 1, 9),
        "moe_norm_min": (1e-12,) * 5 + (0.9,),
        "use_bias": (False,) * 5 + (True,),
    },
)
