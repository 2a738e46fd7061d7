from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

# What SGLang asks for, and transformers' class has not.
_ASKED = {"use_qk_norm": True, "use_routing_bias": True, "scoring_func": "sigmoid"}
TINY: dict[str, Tiny] = {}
TINY["minimax_m2"] = Tiny(
    "MiniMaxM2Config",
    {
        "head_dim": 32,
        "rotary_dim": 16,  # transformers before 5.23 reads the factor alone
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    {
        **choices.HEADS,
        **choices.EXPERTS,
        **choices.NO_TIE,
        "head_dim": (8, 32),
        "num_local_experts": (4, 8),
        "rotary_dim": (None, 4, 8),
    },
    as_published=lambda hf: {**hf, **_ASKED},
)
