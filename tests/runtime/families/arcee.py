from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["arcee"] = Tiny(
    "ArceeConfig",
    {"head_dim": 16, "attention_bias": True},
    {
        **choices.without(choices.HEADS, "hidden_act"),
        "attention_bias": (False, True),
        "tie_word_embeddings": (*(False,) * 9, True),
        "hidden_act": ("relu2",) * 9 + ("silu",),
        "mlp_bias": (False,) * 9 + (True,),
    },
)
