from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["mellum"] = Tiny(
    "MellumConfig",
    {**sizes.QWEN_MOE, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6},
    {
        **choices.HEADS,
        **choices.EXPERTS,
        **choices.NO_TIE,
        "num_hidden_layers": (2,),
        "head_dim": (8, 32),
        "attention_bias": (False, True),
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "norm_topk_prob": (False, True),
        "sliding_window": (1, 5, 64),
        "layer_types": (None, *choices.BOTH_KINDS),
        "mlp_layer_types": (None, ["dense", "sparse"]),
        "rope_parameters": (None, *choices.ROPES_BY_KIND),
    },
)
