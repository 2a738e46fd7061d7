from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RISING = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def _longrope(share: float) -> dict[str, Any]:
    factors = {"short_factor": _RISING[: int(8 * share)], "long_factor": [9.0] * int(8 * share)}
    return {"rope_type": "longrope", **factors, "rope_theta": 500.0, "partial_rotary_factor": share}


TINY: dict[str, Tiny] = {}
TINY["phi3"] = Tiny(
    "Phi3Config",
    {"pad_token_id": None, "original_max_position_embeddings": 64},
    {
        **choices.HEADS,
        **choices.WINDOW,
        "num_attention_heads": (4,),
        "head_dim": (*(None,) * 8, 8, 32),
        "partial_rotary_factor": (None, 0.5, 0.75),
        "rope_parameters": (
            *choices.ROPES[:2] * 3,
            *choices.ROPES[2::5],
            *(_longrope(share) for share in (1.0, 0.75, 0.5) * 3),
        ),
    },
)
