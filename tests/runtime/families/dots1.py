from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_EXPERTS: dict[str, Any] = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
_ROUTED = choices.without(choices.SIGMOID, "attention_bias", "first_k_dense_replace")
TINY: dict[str, Tiny] = {}
TINY["dots1"] = Tiny(
    "Dots1Config",
    {**_EXPERTS, "first_k_dense_replace": 1, "sliding_window": 5},
    {
        **choices.HEADS,
        **_ROUTED,
        "num_hidden_layers": (2,),
        "attention_bias": (None, False, True),
        "first_k_dense_replace": (None, 0, 1, 9),
        "sliding_window": (5, 64),
        "max_window_layers": (0, 1, 2),
        "layer_types": (None, None, *choices.BOTH_KINDS),
    },
)
TINY["solar_open"] = Tiny(
    "SolarOpenConfig",
    {**_EXPERTS, "head_dim": 32},
    {
        **choices.without(choices.HEADS, "intermediate_size", "head_dim"),
        **_ROUTED,
        "head_dim": (8, 16, 32),
        "attention_bias": (None, False, True),
    },
    spelled_apart=("intermediate_size",),
)
