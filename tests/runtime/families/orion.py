from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["orion"] = Tiny(
    "OrionConfig",
    {"rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    {
        **choices.without(choices.HEADS, "head_dim", "rope_parameters"),
        "rope_theta": (None, 500.0),
        "rope_scaling": (*(None,) * 3, *(rope for rope in choices.ROPES if rope is not None)),
    },
)
