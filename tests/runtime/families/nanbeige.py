from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["nanbeige"] = Tiny(
    "NanbeigeConfig",
    {"num_hidden_layers": 2, "num_loops": 2, "rms_norm_eps": 1e-5},
    {
        **choices.without(choices.HEADS, "rope_parameters"),
        "num_hidden_layers": (1, 2, 3),
        "num_loops": (1, 2, 2, 3),
        "skip_loop_final_norm": (False, False, True),
        "rope_theta": (500.0, 50000.0),
        "attention_bias": (*(False,) * 19, True),
    },
)
