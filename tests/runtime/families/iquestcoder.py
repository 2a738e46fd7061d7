from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["iquestcoder"] = Tiny(
    "IQuestCoderConfig",
    {"head_dim": 32, "attention_bias": True, "max_position_embeddings": 512},
    {
        **choices.HEADS,
        "head_dim": (8, 16, 32),
        "attention_bias": (False, True),
        "mlp_bias": (False,) * 9 + (True,),
        "max_position_embeddings": (64, 512),
    },
)
