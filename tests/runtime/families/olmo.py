from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["olmo2"] = Tiny(
    "Olmo2Config",
    {},
    {**choices.HEADS, "attention_bias": (False, True)},
)
TINY["olmoe"] = Tiny(
    "OlmoeConfig",
    {"num_experts": 8, "num_experts_per_tok": 2},
    {
        **choices.HEADS,
        **choices.EXPERTS,
        "head_dim": (None,),
        "attention_bias": (False, True),
        "num_experts": (4, 8),
        "norm_topk_prob": (False, True),
        "clip_qkv": (None,) * 5 + (0.5,),
    },
)
