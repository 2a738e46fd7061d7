from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["gpt_oss"] = Tiny(
    "GptOssConfig",
    {
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 6,
        "rope_parameters": {**sizes.YARN, "truncate": False},
    },
    {
        **choices.HEADS,
        **choices.EXPERTS,
        **choices.NO_TIE,
        "head_dim": (8, 16),
        "num_local_experts": (4, 8),
        "sliding_window": (1, 6, 64),
        "attention_bias": (False, True),
        "swiglu_limit": (7.0, 1.0),
    },
)
