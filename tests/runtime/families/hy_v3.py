from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny, with_count

TINY: dict[str, Tiny] = {}
TINY["hy_v3"] = Tiny(
    "HYV3Config",
    {
        "head_dim": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "qk_norm": True,
        "route_norm": True,
    },
    {
        **choices.HEADS,
        **choices.EXPERTS,
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "rope_parameters": (*choices.ROPES[:2] * 12, *choices.ROPES),
        "attention_bias": (False,) * 19 + (True,),
        "mlp_bias": (False,) * 19 + (True,),
        "num_experts": (4, 8),
        "num_shared_experts": (1, 2) * 9 + (0,),
        "moe_intermediate_size": (16, 32),
        "router_scaling_factor": (1.0, 2.826),
        "enable_moe_fp32_combine": (True, False),
        "route_norm": (True,) * 19 + (False,),
        "qk_norm": (True,) * 9 + (None,),
        "use_qk_norm": (None,) * 9 + (True, False),
        "mlp_layer_types": (
            None,
            ["sparse"] * 3,
            ["dense", "dense", "sparse"],
            ["dense"] * 3,
            ["sparse", "dense", "sparse"],
        ),
    },
    as_published=with_count,
)
