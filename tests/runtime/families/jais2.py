from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["jais2"] = Tiny(
    "Jais2Config",
    {},
    {
        **choices.without(choices.HEADS, "rms_norm_eps"),
        "layer_norm_eps": (1e-6, 1e-2),
        "hidden_act": (*("relu2",) * 9, "silu"),
        "attention_bias": (None, False, True),
        "mlp_bias": (None, False, True),
    },
)
