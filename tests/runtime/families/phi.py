from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["phi3"] = Tiny(
    "Phi3Config",
    {"pad_token_id": None},
    {
        **choices.HEADS,
        **choices.WINDOW,
        "head_dim": (None, 8, 32),
        "partial_rotary_factor": (None, 0.5, 0.75),
        "rope_parameters": (*choices.ROPES[:2] * 3, *choices.ROPES),
    },
)
