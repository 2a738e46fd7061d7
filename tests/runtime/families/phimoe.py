from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
_RISING = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def _longrope(first: int, long: list[float]) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "short_factor": _RISING,
        "long_factor": long,
        "short_mscale": 1.2,
        "long_mscale": 1.3,
        "original_max_position_embeddings": first,
    }


# transformers' class turns long requests by the factors of short ones, SGLang's, as here, by their own.
_ROPES = (_longrope(64, [9.0] * 8), _longrope(8, _RISING))
TINY["phimoe"] = Tiny(
    "PhimoeConfig",
    {"num_local_experts": 4, "lm_head_bias": True, "pad_token_id": None, "rope_parameters": _ROPES[0]},
    {
        **choices.HEADS,
        "head_dim": (None,),
        "num_attention_heads": (4,),
        "num_local_experts": (2, 4, 8),
        "num_experts_per_tok": (2,),
        "tie_word_embeddings": (False,) * 19 + (True,),
        "lm_head_bias": (True,) * 29 + (False,),
        "router_jitter_noise": (0.01,) * 29 + (0.05,),
        "attention_bias": (False, True),
        "sliding_window": (None, *(128,) * 18, 5),
        "rope_parameters": (*choices.ROPES[:2] * 4, *_ROPES * 4, choices.ROPES[2]),
    },
)
