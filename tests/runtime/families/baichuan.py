from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["baichuan"] = Tiny(
    "BaichuanConfig",
    {"rms_norm_eps": 1e-6, "tie_word_embeddings": False},
    {
        **choices.without(choices.COMMON, "rope_parameters"),
        "tie_word_embeddings": (*(False,) * 9, True),
        "vocab_size": (*(99,) * 4, 125696),
        "rope_theta": (None, 500.0),
        "rope_scaling": (None,) * 9 + choices.ROPES[2:3],
    },
    spelled_apart=("num_key_value_heads",),
)
